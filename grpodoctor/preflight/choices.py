"""Multiple choice, as it stands in prompts and answers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grpodoctor.preflight.context import Row

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_COLUMNS = ("choices", "options", "endings")
_LABEL = re.compile(r"(?:^|[\s(])([A-Za-z])[).:]\s*(?=\S)", re.MULTILINE)
_LETTER = re.compile(r"\(?([A-Za-z])\)?(?:[.):]\s.*)?", re.DOTALL)


def options_of(row: Row, answer: str) -> int:
    """How many options a question has of which one is the answer; 0 if it is no such question.

    Options are a column of the data, or stand in the prompt behind letters from A on; the answer is
    a letter of theirs, their number, or one of them.
    """
    listed = _listed(row)
    if listed:
        named = answer.strip().casefold() in {each.strip().casefold() for each in listed}
        number = answer.isdigit() and int(answer) <= len(listed)
        return len(listed) if named or number or letter_of(answer, len(listed)) else 0
    labels = _LABEL.findall(row.prompt)
    count = _run([label.upper() for label in labels])
    if count > 1 and letter_of(answer, count):
        return count
    count = _run(labels)
    first = _LABEL.search(row.prompt)
    behind = row.prompt[first.start() :] if first and count > 1 else ""
    quoted = len(answer) > 1 and answer.strip().casefold() in behind.casefold()
    return count if quoted else 0


def letter_of(answer: str, options: int = len(LETTERS)) -> str:
    """The letter that an answer is, or begins with; empty if it is none of so many options."""
    found = _LETTER.fullmatch(answer.strip())
    letter = found[1].upper() if found else ""
    return letter if letter and letter in LETTERS[:options] else ""


def _listed(row: Row) -> list[str]:
    for name in _COLUMNS:
        value = row.columns.get(name)
        texts = value.get("text") if isinstance(value, dict) else value
        if isinstance(texts, list) and len(texts) > 1:
            return [str(each) for each in texts]
    return []


def _run(labels: Sequence[str]) -> int:
    """How many letters from A on stand there one after the other."""
    longest = here = 0
    for label in labels:
        here = here + 1 if LETTERS[here : here + 1] == label else int(label == "A")
        longest = max(longest, here)
    return longest

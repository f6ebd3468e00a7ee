"""Detection of multiple-choice questions in prompts and answers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grpodoctor.preflight.inputs.columns import OPTION_COLUMNS
from grpodoctor.preflight.inputs.prompt_rows import PromptRow

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LABEL = re.compile(r"(?:^|[\s(])([A-Za-z])[).:]\s*(?=\S)", re.MULTILINE)
_LETTER = re.compile(r"\(?([A-Za-z])\)?(?:[.):]\s.*)?", re.DOTALL)


def count_options(row: PromptRow, answer: str) -> int:
    """Number of options of a multiple-choice question; 0 for any other question.

    The options are a column of the data, or follow the letters A, B, … in the prompt. The answer
    must be the letter, the number or the text of an option.
    """
    options = options_of(row)
    if options:
        is_option = answer.strip().casefold() in {each.strip().casefold() for each in options}
        is_number = answer.isdigit() and int(answer) <= len(options)
        if is_option or is_number or option_letter(answer, len(options)):
            return len(options)
        return 0
    labels = _LABEL.findall(row.prompt)
    count = _longest_run([label.upper() for label in labels])
    if count > 1 and option_letter(answer, count):
        return count
    count = _longest_run(labels)
    first = _LABEL.search(row.prompt)
    options_text = row.prompt[first.start() :] if first and count > 1 else ""
    is_quoted = len(answer) > 1 and answer.strip().casefold() in options_text.casefold()
    return count if is_quoted else 0


def option_letter(answer: str, options: int = len(LETTERS)) -> str:
    """The option letter that an answer is or starts with; empty if it has none of that many."""
    match = _LETTER.fullmatch(answer.strip())
    letter = match[1].upper() if match else ""
    return letter if letter and letter in LETTERS[:options] else ""


def options_of(row: PromptRow) -> list[str]:
    """The options of a multiple-choice question that are a column of the data."""
    for name in OPTION_COLUMNS:
        value = row.columns.get(name)
        texts = value.get("text") if isinstance(value, dict) else value
        if isinstance(texts, list) and len(texts) > 1:
            return [str(text) for text in texts]
    return []


def _longest_run(labels: Sequence[str]) -> int:
    """Length of the longest run of consecutive letters that starts with A."""
    longest = current = 0
    for label in labels:
        current = current + 1 if LETTERS[current : current + 1] == label else int(label == "A")
        longest = max(longest, current)
    return longest

"""Places of a prompt template that some prompts leave empty.

Lines and sentences that nearly all prompts share belong to the template. Between two of them, other
prompts have a text.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_PARTS = (
    re.compile(r"[^.!?\n\u3002]+[.!?\u3002]*"),
    re.compile(r"[^.!?:\n\u3002]+[.!?:\u3002]*"),
)
"""Sentences and lines; then also labels before a colon."""
_MIN_LETTERS = 8
_COMMON = 0.95
"""Share of prompts with a part of the template."""
_MIN_EMPTY, _MAX_EMPTY = 0.02, 0.5
_MISSING = frozenset({"", "none", "nan", "null", "undefined", "<na>", "nat", "[]", "{}"})
"""What a program writes in a place for which it has no value, in lower case."""
EMPTY_OBJECTS = frozenset({"[]", "{}"})
"""Of the words for a missing value, what is a value among other lists and objects, such as the
parameters of tools."""
_PLACEHOLDER = re.compile(r"\{{1,2}\s*[A-Za-z_]\w*\s*\}{1,2}|\$\{\w+\}|%\(\w+\)s|<[a-z_]+>")
"""A name that a program should have replaced by a text."""
_LABEL = re.compile(r"^[^\n:]{1,30}:\s*")
"""A label such as `Letter:` before a text."""
_SHORT_GAP = 40
"""Characters of a usual text in a place, from which words such as None are no value."""
_MIN_ROWS = 20
_MAX_CHARACTERS = 6000
END = "the end"
"""In the place of the part behind the last place."""
_MAX_ANCHORS = 12
_MIN_PARAGRAPH, _MIN_PROSE = 80, 0.8
_MIN_COPIED = 1 / 3
"""Share of the copies in the prose. Half of it is copies if all of a prompt was joined twice."""


@dataclass(frozen=True, slots=True)
class EmptySlot:
    """A place between two parts of the template that some prompts leave empty."""

    before: str
    after: str
    rows: tuple[int, ...]


def empty_slots(prompts: Sequence[str]) -> list[EmptySlot]:
    """The places that a few prompts leave empty and the others fill."""
    texts = [prompt[:_MAX_CHARACTERS] for prompt in prompts]
    if len(texts) < _MIN_ROWS:
        return []
    found = (slot for pattern in _PARTS for slot in _slots(texts, pattern))
    return list({slot.rows: slot for slot in found}.values())


def repeats_paragraph(text: str) -> bool:
    """Whether a text contains a long paragraph of prose twice, as most of its prose.

    Parts that were joined twice are the instruction or the passage. A paragraph that an email, an
    example or an output shares with another one is a part of the content.
    """
    paragraphs = [" ".join(each.split()) for each in re.split(r"\n\s*\n", text)]
    long = [each for each in paragraphs if len(each) >= _MIN_PARAGRAPH and _is_prose(each)]
    copies = sum(map(len, long)) - sum(map(len, set(long)))
    return copies > _MIN_COPIED * sum(map(len, long))


def _is_prose(text: str) -> bool:
    letters = sum(letter.isalpha() or letter == " " for letter in text)
    return letters > _MIN_PROSE * len(text)


def _slots(texts: Sequence[str], pattern: re.Pattern[str]) -> list[EmptySlot]:
    parts = [_parts(text, pattern) for text in texts]
    counts = Counter(part for each in parts for part in {form for form, _, _ in each})
    common = {part for part, count in counts.items() if count >= _COMMON * len(texts)}
    common -= _repeated(parts, common)
    slots = []
    for before, after in _pairs(parts, common):
        gaps = [_gap(text, each, before, after) for text, each in zip(texts, parts, strict=True)]
        empty = _missing(gaps)
        filled = sum(bool(gap) for gap in gaps) - sum(bool(gaps[at]) for at in empty)
        share = len(empty) / len(texts)
        if _MIN_EMPTY <= share <= _MAX_EMPTY and filled + len(empty) >= _COMMON * len(texts):
            slots.append(EmptySlot(before, after, empty))
    return slots


def _repeated(parts: Sequence[Sequence[tuple[str, int, int]]], common: set[str]) -> set[str]:
    """Parts that most prompts have several times, such as a phrase of many turns: no template."""
    several: Counter[str] = Counter()
    for each in parts:
        counts = Counter(form for form, _, _ in each)
        several.update(form for form in common if counts[form] > 1)
    return {form for form, count in several.items() if count > len(parts) / 2}


def _missing(gaps: Sequence[str | None]) -> tuple[int, ...]:
    """Prompts with nothing in a place, or with the word for a missing value among longer texts."""
    lengths = sorted(len(gap) for gap in gaps if gap)
    is_text = bool(lengths) and lengths[len(lengths) // 2] >= _SHORT_GAP
    values = [_LABEL.sub("", gap) for gap in gaps if gap]
    usual = EMPTY_OBJECTS if are_objects(values) else frozenset()
    return tuple(
        at
        for at, gap in enumerate(gaps)
        if gap == "" or (is_text and gap and _is_missing(gap) and _LABEL.sub("", gap) not in usual)
    )


def are_objects(values: Sequence[str]) -> bool:
    """Whether most values are written as JSON, where an empty object is a value."""
    return sum(value.startswith(("{", "[")) for value in values) > len(values) / 2


def _is_missing(gap: str) -> bool:
    """Whether a text in a place is the word for a missing value, or a placeholder."""
    value = _LABEL.sub("", gap)
    return value.casefold() in _MISSING or _PLACEHOLDER.fullmatch(value) is not None


def _parts(text: str, pattern: re.Pattern[str]) -> list[tuple[str, int, int]]:
    """Sentences and lines with numbers made equal, and where they begin and end."""
    return [
        (re.sub(r"\d+", "0", match[0].strip()), match.start(), match.end())
        for match in pattern.finditer(text)
        if sum(letter.isalpha() for letter in match[0]) >= _MIN_LETTERS
    ]


def _pairs(
    parts: Sequence[Sequence[tuple[str, int, int]]], common: set[str]
) -> list[tuple[str, str]]:
    """Parts of the template that follow each other, whatever is between them."""
    order = [form for form, _, _ in next(iter(parts)) if form in common][:_MAX_ANCHORS]
    return [*itertools.pairwise(order), *((last, END) for last in order[-1:])]


def _gap(text: str, parts: Sequence[tuple[str, int, int]], before: str, after: str) -> str | None:
    """What a prompt has between two parts; None if it lacks one of them."""
    ends = [end for form, _, end in parts if form == before]
    starts = [len(text)] if after == END else [start for form, start, _ in parts if form == after]
    if not ends or not starts or starts[-1] < ends[0]:
        return None
    return text[ends[0] : starts[-1]].strip()

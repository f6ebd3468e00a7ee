"""Closed sets of answers that the prompts ask for: '[[A]] or [[B]]', "yes", "no" or "maybe"."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from grpodoctor.preflight.texts.normal_form import words_of

_ITEM = (
    r"(?:\[\[[^\[\]\n]{1,30}\]\]|\*\*[^*\n]{1,40}\*\*|'[^'\n]{1,40}'|\"[^\"\n]{1,40}\"|`[^`\n]{1,40}`|"
    r"\u201c[^\u201d\n]{1,40}\u201d|<\w+>[^<>\n]{1,30}</\w+>)"
)
"""A text in brackets, quotation marks, bold type or tags; the keys of JSON are no choices."""
_LIST = re.compile(
    rf"{_ITEM}(?:(?:\s*[,/|]\s*(?:or\s+)?|\s+or\s+|\s+oder\s+|\s+ou\s+){_ITEM})+(?!\s*:)"
)
_PLAIN = re.compile(
    r"\b(?:into|one of|either|as)[: ]+(?:the (?:labels|classes|categories)[: ]+)?"
    r"((?:[^\W\d_][\w-]{1,24}, ){1,11}[^\W\d_][\w-]{1,24},? (?:or|and) [^\W\d_][\w-]{1,24})\b"
)
"""A list of single words behind "into", "one of" or "either"."""
_SPLIT = re.compile(r",? (?:or|and) |, ")
_ONE = re.compile(_ITEM)
_SIGNS = re.compile(r"^(?:<\w+>|[^\w+-])+|(?:</\w+>|\W)+$")
_MIN_ASKING = 0.9
_MAX_CHOICES = 12
_PLACES = frozenset({("x",), ("n",), ("answer",), ("number",)})


def asked_choices(prompts: Sequence[str]) -> tuple[str, ...]:
    """The answers that nearly all prompts offer in one list; empty if there is none.

    A label in front of an answer is left out: 'Grade: right' offers right.
    """
    counts: Counter[tuple[str, ...]] = Counter()
    for prompt in prompts:
        lists = [_choices(match[0]) for match in _LIST.finditer(prompt)]
        lists += [tuple(_SPLIT.split(match[1])) for match in _PLAIN.finditer(prompt)]
        counts.update(dict.fromkeys(lists, 1))
    found = [
        choices for choices, count in counts.items()
        if count >= _MIN_ASKING * len(prompts) and 2 <= len(choices) <= _MAX_CHOICES
    ]  # fmt: skip
    return found[0] if len(found) == 1 else ()


def _choices(text: str) -> tuple[str, ...]:
    items = (_SIGNS.sub("", match[0]).rpartition(":")[2] for match in _ONE.finditer(text))
    names = (_SIGNS.sub("", item) for item in items)
    return tuple(dict.fromkeys(name for name in names if words_of(name) not in (*_PLACES, ())))


def outside_choices(prompts: Sequence[str], answers: Sequence[str]) -> tuple[str, ...]:
    """The choices that the prompts ask for, if nearly no answer is or contains one of them."""
    choices = asked_choices(prompts)
    wanted = [words_of(choice) for choice in choices]
    inside = sum(any(_contains(words_of(answer), each) for each in wanted) for answer in answers)
    return choices if choices and inside <= (1 - _MIN_ASKING) * len(answers) else ()


def _contains(words: Sequence[str], part: Sequence[str]) -> bool:
    size = len(part)
    return any(tuple(words[at : at + size]) == tuple(part) for at in range(len(words) - size + 1))

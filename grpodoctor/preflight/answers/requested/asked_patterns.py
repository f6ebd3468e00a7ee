"""Patterns of digits that prompts spell out, such as HH:MM or YYYY-MM-DD."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_PATTERN = re.compile(
    r"(?<![\w/.-])(?:Y{4}|YY|MM|DD|HH|SS|hh|mm|ss|dd|yyyy|#+|X{2,4})"
    r"(?:[-/.:](?:Y{4}|YY|MM|DD|HH|SS|hh|mm|ss|dd|yyyy|#+|X{2,4}))+(?![\w/-])"
)
_FIRST = re.compile(r"(?<!\d)(\d)(?!\d)")
_MIN_ASKING = 0.9
"""Share of the prompts that spell the pattern out."""
_MIN_FIT = 0.5
"""Share of the answers that have it, so that it is the form of the answers."""
_MIN_UNFIT, _MIN_UNFIT_SHARE = 3, 0.01


@dataclass(frozen=True, slots=True)
class OutsidePattern:
    """Answers without the pattern that their prompts spell out."""

    pattern: str
    rows: tuple[int, ...]
    padded: Mapping[int, str]
    """Those that have the pattern with a zero in front of their first digit."""


def outside_pattern(prompts: Sequence[str], answers: Sequence[str]) -> OutsidePattern | None:
    """The answers without the pattern that prompts ask for.

    Returns:
        None if prompts spell none out, or most answers have another form.
    """
    spelled = Counter(pattern for prompt in prompts for pattern in set(_PATTERN.findall(prompt)))
    for pattern, count in spelled.most_common(3):
        if count < _MIN_ASKING * len(prompts):
            break
        form = re.compile(
            "".join(r"\d" if letter.isalpha() or letter == "#" else re.escape(letter)
                    for letter in pattern)
        )  # fmt: skip
        unfit = [at for at, answer in enumerate(answers) if not form.search(answer)]
        fit = len(answers) - len(unfit)
        if fit < _MIN_FIT * len(answers):
            continue
        if len(unfit) >= max(_MIN_UNFIT, _MIN_UNFIT_SHARE * len(answers)):
            padded = {at: _FIRST.sub(r"0\1", answers[at], count=1) for at in unfit}
            zeros = {at: text for at, text in padded.items() if form.search(text)}
            return OutsidePattern(pattern, tuple(unfit), zeros)
    return None

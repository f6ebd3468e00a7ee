"""A layout of tags that the prompts show, written as a model writes it and as a pattern wants it.

A reward for the form is often a strict pattern. It may accept the requested tags only with a
thought of one line, or only with a line break behind the last tag, which no model writes. The
layout is therefore scored in all spellings of its white space; the usual one must not earn less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import format_answer
from grpodoctor.preflight.answers.reference_answers import ReferenceAnswers
from grpodoctor.preflight.answers.requested.requested_formats import tag_layout
from grpodoctor.trainer.rewards.user_reward import UserReward

_MAX_ROWS = 16
"""Rows that are scored in each of the eight spellings."""
LAST_BREAK = "no line break behind the last tag"
_ONE_LINE = "First I read the question. Then I compute the result."
_SEVERAL_LINES = "First I read the question.\nThen I compute the result.\n\nI check it once more."


@dataclass(frozen=True, slots=True)
class _Spelling:
    inner_breaks: bool
    """A line break behind each opening and before each closing tag."""
    several_lines: bool
    """A thought of several lines."""
    last_break: bool
    """A line break behind the last tag."""


@dataclass(frozen=True, slots=True)
class LostForm:
    """A requested layout that earns less as models write it."""

    part: float
    """Part of the best spelling's reward that is lost."""
    causes: tuple[str, ...]
    best: str
    usual: str


def lost_form(
    reward: UserReward, answers: ReferenceAnswers, rows: Sequence[int]
) -> LostForm | None:
    """The loss of the requested layout in its usual spelling; None without a layout or a loss.

    Args:
        reward: the reward function.
        answers: the data's answers.
        rows: rows whose correct answer is rewarded.
    """
    chosen = rows[:_MAX_ROWS]
    names = tag_layout(["\n".join(row.texts()) for row in answers.rows])
    if len(names) < 2 or not chosen:
        return None
    spellings = [_Spelling(*each) for each in product((True, False), repeat=3)]
    earned = {}
    for each in spellings:
        texts = [format_answer(_form(names, each), answers.answers[at]) for at in chosen]
        try:
            earned[each] = fmean(reward([answers.rows[at] for at in chosen], texts).total)
        except DataError:  # REW103 reports it
            return None
    best = max(spellings, key=lambda each: earned[each])
    usual = max(
        (each for each in spellings if each.several_lines and not each.last_break),
        key=lambda each: (earned[each], each.inner_breaks == best.inner_breaks),
    )
    floor = max(fmean(answers.empty[at] for at in chosen), 0.0)
    if earned[best] <= floor:
        return None
    part = (earned[best] - earned[usual]) / (earned[best] - floor)
    return LostForm(
        part, tuple(_causes(earned, best)), _form(names, best), _form(names, usual)
    )  # fmt: skip


def _causes(earned: dict[_Spelling, float], best: _Spelling) -> list[str]:
    """What the usual spelling has, or lacks, that costs reward next to the best one."""
    longer = _Spelling(best.inner_breaks, several_lines=True, last_break=best.last_break)
    ended = _Spelling(best.inner_breaks, best.several_lines, last_break=False)
    return [
        cause
        for spelling, cause in (
            (longer, "a thought of several lines (the dot of a pattern stops at a line break)"),
            (ended, LAST_BREAK),
        )
        if earned[spelling] < earned[best]
    ]


def _form(names: Sequence[str], spelling: _Spelling) -> str:
    thought = _SEVERAL_LINES if spelling.several_lines else _ONE_LINE
    edge = "\n" if spelling.inner_breaks else ""
    contents = [*[thought] * (len(names) - 1), "{answer}"]
    parts = [
        f"<{name}>{edge}{content}{edge}</{name}>"
        for name, content in zip(names, contents, strict=True)
    ]
    return "\n".join(parts) + ("\n" if spelling.last_break else "")

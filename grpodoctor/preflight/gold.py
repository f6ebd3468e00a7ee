"""What the reward function pays for the data's own answers; asked once for all checks."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers import formats_of, written
from grpodoctor.preflight.base import Skipped
from grpodoctor.preflight.patient import Judge, Plan, Row

NEEDS_REWARD = Skipped("no reward function was given", "give --reward FILE.py:function")
NEEDS_ANSWERS = Skipped(
    "the prompts have no answers", "have a column answer, solution or ground_truth in --prompts"
)
_MOST_ROWS = 64
"""That are judged: enough to find a parser that misses a tenth of the answers."""


@dataclass(frozen=True, slots=True)
class Gold:
    """Rows with an answer, and the form in which most of their answers are paid."""

    rows: tuple[Row, ...]
    name: str
    """Of the form."""
    form: str
    rewards: tuple[float, ...]
    """Of the right answers in that form."""
    nothing: tuple[float, ...]
    """Of an empty completion."""

    @property
    def paid(self) -> tuple[bool, ...]:
        """Which right answers are worth more than nothing."""
        pairs = zip(self.rewards, self.nothing, strict=True)
        return tuple(right > empty for right, empty in pairs)


def try_gold(judge: Judge, rows: Sequence[Row], plan: Plan) -> Gold | None:
    """Reward the data's answers in every form; None without answers.

    Raises:
        DataError: if the reward function fails.
    """
    known = [row for row in rows if row.answer is not None and row.answer.strip()]
    if not known:
        return None
    if len(known) > _MOST_ROWS:
        known = random.Random(plan.seed).sample(known, _MOST_ROWS)  # noqa: S311 - a choice of rows
    nothing = _nothing(judge, known)
    tried = [
        Gold(
            tuple(known),
            name,
            form,
            _rewards(judge, known, [written(form, row.answer or "") for row in known]),
            nothing,
        )
        for name, form in formats_of(plan).items()
    ]
    return max(tried, key=lambda gold: sum(gold.paid))


def _nothing(judge: Judge, rows: Sequence[Row]) -> tuple[float, ...]:
    """What empty completions are worth; a function that fails on them pays nothing for them."""
    try:
        return _rewards(judge, rows, [""] * len(rows))
    except DataError:
        return (-math.inf,) * len(rows)


def _rewards(judge: Judge, rows: Sequence[Row], texts: Sequence[str]) -> tuple[float, ...]:
    return tuple(verdict.reward for verdict in judge(rows, texts))

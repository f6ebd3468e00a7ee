"""Rewards with the wrong sign: wrong answers and no answer earn more than the right one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import (
    answer_formats,
    format_answer,
    wrong_answer,
)
from grpodoctor.preflight.answers.requested.requested_formats import requested_formats
from grpodoctor.preflight.answers.stated_answers import final_answer
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.trainer.rewards.user_reward import UserReward

_TRIED_ROWS = 8
_MIN_ROWS = 4
_MOST = 0.9
"""Share of the rows in which the right answer must earn least."""


@dataclass(frozen=True, slots=True)
class InvertedReward:
    """The usual rewards of a format in which right answers earn least."""

    answer_format: str
    right: float
    wrong: float
    empty: float


def inverted_reward(
    reward: UserReward, rows: Sequence[PromptRow], settings: RunSettings
) -> InvertedReward | None:
    """The first format in which right answers earn less than two wrong ones and than no answer.

    None if there is no such format, or right answers earn more than wrong ones in another one.

    Args:
        reward: the function.
        rows: rows with answers.
        settings: for the format of the answers.
    """
    few = [row for row in rows if (row.answer or "").strip()][:_TRIED_ROWS]
    if len(few) < _MIN_ROWS:
        return None
    asked = requested_formats(["\n".join(row.texts()) for row in few])
    finals = [final_answer(row.answer or "") for row in few]
    others = [[wrong_answer(text, pool) for text in finals] for pool in (finals, finals[::-1])]
    found = None
    try:
        empty = reward(few, [""] * len(few)).total
    except DataError:
        return None
    for form in dict.fromkeys((*answer_formats(settings).values(), *asked)):
        try:
            right, *wrong = (
                reward(few, [format_answer(form, text) for text in texts]).total
                for texts in (finals, *others)
            )
        except DataError:
            continue
        triples = list(zip(right, *wrong, strict=True))
        if sum(r > max(w) for r, *w in triples) > len(triples) / 2:
            return None
        least = [r < min(*w, e) for (r, *w), e in zip(triples, empty, strict=True)]
        if found is None and sum(least) >= _MOST * len(least):
            found = InvertedReward(form, *map(median, (right, wrong[0], empty)))
    return found

"""Relations that the rewards of several responses to the same prompt must have to each other.

They need no knowledge of the task: a longer response is no better, an answer that is nearer is not
worse, and each accepted answer is accepted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from statistics import median

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import format_answer, with_reasoning
from grpodoctor.preflight.answers.reference_answers import ReferenceAnswers
from grpodoctor.trainer.rewards.user_reward import RewardInput, UserReward

_MIN_ROWS = 5
_FILLER = "I think about this once more. "
_LENGTHS = (10, 100)
"""Sentences of filler before the answer."""
_FREE_LENGTHS = (10, 100, 1000)
"""Sentences of filler without an answer: three lengths tell growth on and on from a limit."""
_FREE_ROWS = 8
"""Rows on which it is scored."""
_FRACTION = re.compile(r"-?\d{1,12}\.\d{1,6}")
_MAX_LISTED = 4


def growth_with_length(reward: UserReward, answers: ReferenceAnswers) -> float:
    """How many times as much a correct answer earns behind a lot of filler; 1 if not more.

    A reward for the presence of reasoning is one step; this one grows with every sentence.
    """
    rows = _recognized(answers)
    if len(rows) < _MIN_ROWS or any(answers.empty[at] > 0 for at in rows):
        return 1.0
    earned = [[answers.rewards[at] for at in rows]]
    for length in _LENGTHS:
        form = _FILLER * length + with_reasoning(answers.answer_format)
        scored = _scored(reward, answers, rows, [answers.answers[at] for at in rows], form)
        if scored is None:
            return 1.0
        earned.append(scored)
    short, middle, long = (median(each) for each in earned)
    return long / short if 0 < short < middle < long else 1.0


def limitless_growth(reward: UserReward, rows: Sequence[RewardInput]) -> float:
    """How many times as much a thousand sentences of filler earn as a hundred; 1 if not more.

    It needs no answer. A reward that prefers a length, or counts something up to a limit, does not
    grow at lengths that no prompt asks for.
    """
    chosen = rows[:_FREE_ROWS]
    earned = []
    for length in _FREE_LENGTHS:
        try:
            earned.append(median(reward(chosen, [_FILLER * length] * len(chosen)).total))
        except DataError:  # REW103 reports it
            return 1.0
    ten, hundred, thousand = earned
    return thousand / hundred if ten < hundred and 0 < hundred < thousand else 1.0


def truncated_numbers(reward: UserReward, answers: ReferenceAnswers) -> tuple[int, int]:
    """Decimal answers for which a number that is further away is accepted and a nearer one is not.

    A tolerance accepts the nearer one too; a function that drops the decimals does not.

    Returns:
        How many of the tried rows, and the number of tried rows.
    """
    rows = [
        at
        for at in _recognized(answers)
        if _FRACTION.fullmatch(answers.answers[at].strip())
        and abs(float(answers.answers[at])) > 1
        and 0.6 < abs(float(answers.answers[at])) % 1 < 0.95
    ]
    if len(rows) < _MIN_ROWS:
        return 0, 0
    further = [_beside(answers.answers[at], 0.02) for at in rows]
    nearer = [_beside(answers.answers[at], 1.02) for at in rows]
    both = [_scored(reward, answers, rows, texts) for texts in (further, nearer)]
    if both[0] is None or both[1] is None:
        return 0, 0
    kept = [
        one >= answers.rewards[at] > other
        for at, one, other in zip(rows, both[0], both[1], strict=True)
    ]
    return sum(kept), len(rows)


def _beside(answer: str, fraction: float) -> str:
    """A number with the same whole part, or the next one, and another fraction."""
    value = float(answer)
    return f"{math.copysign(math.floor(abs(value)) + fraction, value):.2f}"


def refused_alternatives(
    reward: UserReward, answers: ReferenceAnswers
) -> tuple[list[int], int, str]:
    """Rows whose first accepted answer is rewarded and another one of the list is not.

    Returns:
        The rows, the number of rows with several answers, and an example.
    """
    tried = [
        (at, other) for at in _recognized(answers)
        for other in _alternatives(answers.rows[at].columns.values(), answers.answers[at])[:1]
    ]  # fmt: skip
    if len(tried) < _MIN_ROWS:
        return [], 0, ""
    rows = [at for at, _ in tried]
    scored = _scored(reward, answers, rows, [text for _, text in tried])
    if scored is None:
        return [], 0, ""
    refused = [
        (at, text) for (at, text), value in zip(tried, scored, strict=True)
        if value < (answers.rewards[at] + max(answers.wrong[at], answers.empty[at])) / 2
    ]  # fmt: skip
    return [at for at, _ in refused], len(tried), refused[0][1] if refused else ""


def _alternatives(values: Iterable[object], answer: str) -> list[str]:
    """The other texts of a short list whose first text is the answer; empty if there is none."""
    for value in values:
        texts = [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
        if 1 < len(texts) <= _MAX_LISTED and texts[0] == answer:
            folded = answer.casefold()
            return [each for each in texts[1:] if each.strip() and each.casefold() != folded][::-1]
    return []


def _recognized(answers: ReferenceAnswers) -> list[int]:
    return [
        at
        for at, missed in enumerate(answers.missed)
        if not missed and answers.rewards[at] > answers.wrong[at]
    ]


def _scored(
    reward: UserReward,
    answers: ReferenceAnswers,
    rows: Sequence[int],
    texts: Sequence[str],
    form: str = "",
) -> list[float] | None:
    """Rewards of other answers to these rows; None if the function fails."""
    responses = [format_answer(form or answers.answer_format, text) for text in texts]
    try:
        return list(reward([answers.rows[at] for at in rows], responses).total)
    except DataError:  # REW103 reports it
        return None

"""The first step of the run with simple responses in place of the model's: what the reward pays."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import (
    format_answer,
    with_reasoning,
    wrong_answer,
)
from grpodoctor.preflight.answers.kinds.program_tests import passing_programs
from grpodoctor.preflight.answers.multiple_choice import letter_of_number
from grpodoctor.preflight.answers.reference_answers import (
    AROUND_EACH,
    OWN_SOLUTIONS,
    ReferenceAnswers,
    around_each,
)
from grpodoctor.preflight.answers.stated_answers import final_answer
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.trainer.rewards.user_reward import UserReward

RIGHT, WRONG, EMPTY, CUT = KINDS = ("right", "wrong", "empty", "cut")
"""Kinds of responses, which take turns in a group; `cut` is a right one without its second half."""
_MOST_SECONDS = 10.0
"""Time for the reward of the step; of a slower function, fewer prompts and smaller groups are
scored."""
_LEAST_SPREAD = 1e-4
"""What trainers add to the standard deviation of a group: a smaller one is none."""


@dataclass(frozen=True, slots=True)
class SimulatedStep:
    """The rewards of a step's groups."""

    rows: tuple[PromptRow, ...]
    """The prompts of the step."""
    scored: int
    """Number of prompts, from the first, whose groups were scored."""
    group_size: int
    """Responses per prompt of the step; a slow function scores one of each kind."""
    advantages: tuple[dict[str, float], ...]
    """Of each scored group: the advantage of each kind; empty if all rewards are equal."""
    seconds: float
    """Time of the reward function for all responses of the step, one call."""

    @property
    def silent(self) -> list[int]:
        """Groups whose rewards are all equal."""
        return [at for at, each in enumerate(self.advantages) if not each]

    @property
    def leading(self) -> int:
        """Groups in which the right responses have a higher advantage than all others."""
        return sum(
            each[RIGHT] > max(each[kind] for kind in each if kind != RIGHT)
            for each in self.advantages
            if each
        )

    def mean_advantage(self, kind: str) -> float:
        """Mean advantage of a kind over the scored groups; 0 in a group with equal rewards."""
        return statistics.fmean(each.get(kind, 0.0) for each in self.advantages)


def simulate_step(
    reward: UserReward,
    answers: ReferenceAnswers,
    rows: Sequence[PromptRow],
    settings: RunSettings,
    *,
    is_shuffled: bool,
) -> SimulatedStep:
    """Score groups of simple responses to the prompts of the first step.

    Args:
        reward: the reward function.
        answers: the data's answers, with the format in which they are rewarded.
        rows: all rows of the file, in its order.
        settings: prompts and group size of a step.
        is_shuffled: whether the data loader shuffles; a seeded sample then stands for its order.

    Raises:
        DataError: if the reward function fails.
    """
    chosen = _rows_of_step(rows, settings, is_shuffled=is_shuffled)
    most, size = len(chosen), max(settings.group_size, len(KINDS))
    _, tried = _scored(reward, chosen[:1], _responses(answers, chosen[:1]), len(KINDS))
    fitting = int(_MOST_SECONDS / max(tried / len(KINDS), 1e-9))  # responses
    scored_size = size if fitting >= size else len(KINDS)
    scored = max(1, min(most, fitting // scored_size))
    rewards, seconds = _scored(
        reward, chosen[:scored], _responses(answers, chosen)[:scored], scored_size
    )
    return SimulatedStep(
        tuple(chosen), scored, size, tuple(_advantages(each) for each in rewards),
        seconds * (most * size) / (scored * scored_size),
    )  # fmt: skip


def failing_rows(
    reward: UserReward,
    answers: ReferenceAnswers,
    rows: Sequence[PromptRow],
    settings: RunSettings,
    *,
    is_shuffled: bool,
) -> list[tuple[PromptRow, str]]:
    """The rows of the first step on which the function fails, with the error of each.

    Each row is scored alone, with a response of each kind.

    Args:
        reward: the reward function.
        answers: as for `simulate_step`.
        rows: as for `simulate_step`.
        settings: as for `simulate_step`.
        is_shuffled: as for `simulate_step`.

    Returns:
        No rows if a call takes too long: that is no fault of a row.
    """
    chosen = _rows_of_step(rows, settings, is_shuffled=is_shuffled)
    failing = []
    for row, texts in zip(chosen, _responses(answers, chosen), strict=True):
        try:
            reward([row] * len(KINDS), [texts[kind] for kind in KINDS])
        except DataError as error:
            failing.append((row, error.what))
        if reward.has_timed_out:
            return []
    return failing


def _rows_of_step(
    rows: Sequence[PromptRow], settings: RunSettings, *, is_shuffled: bool
) -> Sequence[PromptRow]:
    """The prompts of the first step."""
    most = min(settings.batch_prompts, len(rows))
    if not is_shuffled:
        return rows[:most]
    return random.Random(settings.seed).sample(list(rows), most)  # noqa: S311 - a choice of rows


def _responses(answers: ReferenceAnswers, rows: Sequence[PromptRow]) -> list[dict[str, str]]:
    """A response of each kind to each prompt."""
    right = _right_answers(answers, rows)
    form, reasoned = answers.answer_format, with_reasoning(answers.answer_format)
    responses = []
    for answer in right:
        whole = format_answer(reasoned, answer)
        responses.append({
            RIGHT: format_answer(form, answer),
            WRONG: format_answer(form, wrong_answer(answer, right)),
            EMPTY: "",
            CUT: whole[: len(whole) // 2],
        })  # fmt: skip
    return responses


def _right_answers(answers: ReferenceAnswers, rows: Sequence[PromptRow]) -> list[str]:
    """The answers of rows in the form in which those of other rows are rewarded."""
    texts = [row.answer or "" for row in rows]
    if answers.format_name.startswith(OWN_SOLUTIONS):
        return texts
    if letter_of_number(answers.rows[0]) == answers.answers[0]:
        texts = [letter_of_number(row) or text for row, text in zip(rows, texts, strict=True)]
    finals = passing_programs(texts) or [final_answer(text) for text in texts]
    if answers.format_name.endswith(AROUND_EACH):
        return [around_each(answers.answer_format, text) or text for text in finals]
    return finals


def _scored(
    reward: UserReward, rows: Sequence[PromptRow], texts: Sequence[dict[str, str]], size: int
) -> tuple[list[list[float]], float]:
    """The rewards of each group, kinds in turns, and the seconds of the call."""
    inputs = [row for row in rows for _ in range(size)]
    responses = [each[KINDS[at % len(KINDS)]] for each in texts for at in range(size)]
    started = time.monotonic()
    values = list(reward(inputs, responses).total)
    seconds = time.monotonic() - started
    return [values[at : at + size] for at in range(0, len(values), size)], seconds


def _advantages(rewards: Sequence[float]) -> dict[str, float]:
    """The normalized reward of each kind in a group; empty if the rewards are equal."""
    spread = statistics.stdev(rewards)
    if not math.isfinite(spread) or spread <= _LEAST_SPREAD:
        return {}
    mean = statistics.fmean(rewards)
    by_kind = {kind: rewards[at :: len(KINDS)] for at, kind in enumerate(KINDS)}
    return {kind: (statistics.fmean(each) - mean) / spread for kind, each in by_kind.items()}

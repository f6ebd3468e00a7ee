"""REW105."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import ClassVar

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.answer_variants import REASONING
from grpodoctor.preflight.answers.constructed_answers import format_answer, wrong_answer
from grpodoctor.preflight.answers.reference_answers import REQUIRES_REWARD
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.trainer.rewards.user_reward import UserReward

_SIZES = (8, 32)
"""Completions in a small and a large batch: their difference gives the cost of a completion, even
if the function scores a batch concurrently."""
_REPEATS = 3
_MAX_SECONDS = 10.0
"""Time after which a measurement is not repeated."""
_SENTENCES = 40
"""Sentences before the answer: the length of a usual response."""


class SlowReward(Check):
    """The reward function makes every step slower.

    What it sees:
        The time of a small and a large batch of completions of usual length, the fastest of three
        measurements each. Right, wrong and no answers are timed, and the slowest count. From these
        it forecasts the time for all responses of a step: --batch-prompts times --group-size.

    Why it matters:
        Most trainers wait for the rewards, so that the GPUs are idle meanwhile. Ten milliseconds
        per response are twenty seconds in a step of 2048 responses.

    What to do:
        Score a batch in several processes or asynchronously, cache what does not depend on the
        response, and limit the time of each response.

    When it is wrong:
        The forecast assumes that the cost grows evenly with the number of responses, and that the
        function runs in one process as here. A trainer that scores responses in several processes,
        or while others are sampled, is faster.

    References:
        None.
    """

    code: ClassVar[str] = "REW105"
    name: ClassVar[str] = "slow-reward"
    summary: ClassVar[str] = "The reward function makes every step slower."
    warning_seconds: ClassVar[float] = 20.0
    """Seconds per step from which the forecast is a warning: a quarter of 79 seconds, the lower
    quartile of 1038 logged steps of six public runs."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Measure two batches and forecast a step."""
        if context.reward is None:
            return REQUIRES_REWARD
        if not context.rows:
            return SkippedCheck("no prompts were given", "add --prompts")
        try:
            small, rows, texts = _slowest(context, context.reward)
            large = _seconds(context.reward, rows, texts, _SIZES[1])
        except DataError as error:
            return SkippedCheck(f"the reward function could not be timed: {error.what}")
        settings = context.settings
        responses = settings.group_size * settings.batch_prompts
        each = max(large - small, 0.0) / (_SIZES[1] - _SIZES[0])
        forecast = large + each * max(responses - _SIZES[1], 0)
        if forecast < self.warning_seconds:
            return ()
        return (
            CheckFinding(
                "warning",
                f"The reward function will take {forecast:.0f} seconds per step of {responses} "
                f"responses ({1000 * each:.0f} ms each).",
                ("Score responses in several processes, or asynchronously; cache what repeats.",),
                tuple(
                    f"{size} completions: {seconds:.2f} s"
                    for size, seconds in zip(_SIZES, (small, large), strict=True)
                ),
                {"seconds_per_step": forecast, "seconds_per_response": each},
            ),
        )


def _slowest(
    context: PreflightContext, reward: UserReward
) -> tuple[float, list[PromptRow], list[str]]:
    """The kind of responses that takes longest in the small batch, with its time in seconds."""
    slowest: tuple[float, list[PromptRow], list[str]] = (-1.0, [], [])
    for rows, texts in _responses(context):
        seconds = _seconds(reward, rows, texts, _SIZES[0], _MAX_SECONDS / 3)
        slowest = max(slowest, (seconds, rows, texts), key=lambda timed: timed[0])
        if seconds >= _MAX_SECONDS:  # slow enough to report, and expensive to repeat
            break
    return slowest


def _responses(context: PreflightContext) -> Iterator[tuple[list[PromptRow], list[str]]]:
    """Rows with a completion of usual length each: right answers, wrong ones, and none."""
    answers = context.reference_answers
    if answers is None:
        yield [context.reward_rows[0]], [REASONING * _SENTENCES]
        return
    wrong = [wrong_answer(answer, answers.answers) for answer in answers.answers]
    for each in (answers.answers, wrong):
        texts = [format_answer(answers.answer_format, answer) for answer in each]
        yield list(answers.rows), [REASONING * _SENTENCES + text for text in texts]
    yield list(answers.rows), [REASONING * _SENTENCES] * len(answers.rows)


def _seconds(
    reward: UserReward,
    rows: Sequence[PromptRow],
    texts: Sequence[str],
    size: int,
    most_seconds: float = _MAX_SECONDS,
) -> float:
    """The shortest time of a batch; other programs can only make it longer."""
    batch = list(islice(cycle(zip(rows, texts, strict=True)), size))
    times: list[float] = []
    while len(times) < _REPEATS and sum(times) < most_seconds:
        started = time.monotonic()
        reward([row for row, _ in batch], [text for _, text in batch])
        times.append(time.monotonic() - started)
    return min(times)

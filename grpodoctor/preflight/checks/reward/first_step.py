"""GRP103."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from grpodoctor.errors import DataError, ModelError
from grpodoctor.preflight.answers.completions.simulated_step import (
    CUT,
    EMPTY,
    KINDS,
    WRONG,
    SimulatedStep,
    failing_rows,
    simulate_step,
)
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.support.numbers import count_of, part_of

_SHOWN = 4


class FirstStep(Check):
    """What the first step of the run would show.

    What it sees:
        Takes the prompts of the first step, with batch and group size of the run's config: the
        first of the file if the config does not shuffle, otherwise a seeded sample. Each group gets
        right, wrong, empty and cut responses in turns, in the format in which correct answers are
        rewarded, and the reward function scores all of them in one call. Notes the groups in which
        right responses lead, groups with equal rewards, advantages, prompts above the limit, and
        the time of the call.

        It is a warning if most groups of this step have equal rewards although the reward function
        recognizes most answers of the file: the file begins with rows of another kind. If no config
        says whether the loader shuffles, that is a note as well. It is critical if the function
        fails on single rows of this step, each scored alone.

    Why it matters:
        It is the shortest way to see data, reward and settings act together.

    What to do:
        Compare the first logged step with the note. Look at the listed rows.

    When it is wrong:
        The model's own responses have other lengths and other shares of right answers: the note is
        what the reward does, not what the model will do.

    References:
        None.
    """

    code: ClassVar[str] = "GRP103"
    name: ClassVar[str] = "first-step"
    summary: ClassVar[str] = "What the first step of the run would show."
    max_silent: ClassVar[float] = 0.5
    """Share of groups with equal rewards from which the step has no signal."""
    max_failing: ClassVar[float] = 0.5
    """Share of rows up to which an error is a fault of these rows, not of every call."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Simulate the step."""
        usable = context.rewarded_answers()
        if isinstance(usable, SkippedCheck):
            return usable
        reward, answers = usable
        shuffled = context.run_config.get("shuffled_data")
        is_shuffled = shuffled is True
        rows, settings = context.reward_rows, context.settings
        try:
            step = simulate_step(reward, answers, rows, settings, is_shuffled=is_shuffled)
        except DataError as error:
            failing = failing_rows(reward, answers, rows, settings, is_shuffled=is_shuffled)
            if 0 < len(failing) <= self.max_failing * min(settings.batch_prompts, len(rows)):
                return (_stops_the_run(failing),)
            return SkippedCheck(f"in the first step, {error.what}", "correct the function")
        details = tuple(_paragraph(context, step, is_shuffled=is_shuffled))
        silent, scored = len(step.silent), step.scored
        figures = {
            "groups": scored, "leading": step.leading, "silent": silent, "seconds": step.seconds,
        }  # fmt: skip
        is_known = sum(answers.missed) <= len(answers.missed) / 2
        if silent > self.max_silent * scored and is_known:
            return (
                CheckFinding(
                    "info" if shuffled is None else "warning",
                    f"{'In a random step' if is_shuffled else 'In the first rows'}, {silent} of "
                    f"{scored} groups have equal rewards, although most answers of the file are "
                    "recognized.",
                    (
                        "Look at the listed rows."
                        if is_shuffled
                        else "Look at the first rows of the file, or shuffle it.",
                    ),
                    (*details, *(step.rows[at].location for at in step.silent[:_SHOWN])),
                    figures,
                ),
            )
        return (
            CheckFinding(
                "info",
                f"First step: right responses lead in {step.leading} of {scored} groups; "
                f"rewards are equal in {silent}.",
                (),
                details,
                figures,
            ),
        )


def _stops_the_run(failing: Sequence[tuple[PromptRow, str]]) -> CheckFinding:
    """Rows on which the reward function fails whatever the model writes."""
    return CheckFinding(
        "critical",
        f"The reward function fails on {count_of(len(failing), 'row')} of the first step, so the "
        "run stops there.",
        ("Handle such rows in the function, or remove them.",),
        tuple(f"{row.location}: {what}" for row, what in failing[:_SHOWN]),
        {"failing": float(len(failing))},
    )


def _paragraph(
    context: PreflightContext, step: SimulatedStep, *, is_shuffled: bool
) -> Iterator[str]:
    """The step in a few sentences."""
    prompts = len(step.rows)
    where = "a random sample, as the loader shuffles" if is_shuffled else "the first of the file"
    is_known = context.batch_prompts or "batch_prompts" in context.settings.given
    assumed = "" if is_known else "; the config does not say how many, so this is assumed"
    responses = prompts * step.group_size
    yield (
        f"{count_of(prompts, 'prompt')} x {count_of(step.group_size, 'response')} = {responses}: "
        f"{where}{assumed}"
    )
    means = ", ".join(f"{kind} {step.mean_advantage(kind):+.2f}" for kind in KINDS)
    yield f"mean advantage, in standard deviations of the group: {means}"
    if step.mean_advantage(CUT) > step.mean_advantage(WRONG):
        yield "responses that are cut off earn more than wrong ones"
    if step.mean_advantage(EMPTY) > step.mean_advantage(WRONG):
        yield "empty responses earn more than wrong ones"
    if (limit := context.max_prompt_length) is not None and (
        long := _above(context, step, limit)
    ) >= 0:
        yield f"{part_of(long, prompts, 'prompts', 'are')} longer than {limit} tokens"
    scored = "" if step.scored == prompts else f", estimated from {count_of(step.scored, 'prompt')}"
    yield f"the reward function takes {step.seconds:.1f} s for all responses, in one call{scored}"


def _above(context: PreflightContext, step: SimulatedStep, limit: int) -> int:
    """Prompts with more tokens than the limit; -1 if they cannot be tokenized."""
    if context.files is None:
        return -1
    try:
        return sum(len(context.render(row)) > limit for row in step.rows)
    except ModelError:  # DAT105 and DAT119 report it
        return -1

"""OPT102."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.run_length import (
    advice_for_unknown,
    amount,
    fewest_prompts,
    most_steps,
)
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.rules.config.optimizer.warmup_longer_than_run import WarmupLongerThanRun
from grpodoctor.support.numbers import count_of


class WarmupLongerThanEpochs(Check):
    """The warm-up of the learning rate takes most of the steps that the prompts give.

    What it sees:
        The steps of the run: the prompts of the file, the prompts per step and the epochs of the
        config (--run-config); for one process if the config does not say how many there are. The
        steps of the warm-up are compared with them.

    Why it matters:
        The learning rate never reaches its value, or only at the end. The run learns as slowly as
        with a much smaller learning rate, and looks flat.

    What to do:
        Shorten the warm-up to a few per cent of the run, or train for more epochs.

    When it is wrong:
        The run mixes this file with others, or is resumed with more epochs.

    References:
        transformers, TrainingArguments.warmup_steps.
    """

    code: ClassVar[str] = "OPT102"
    name: ClassVar[str] = "warmup-longer-than-epochs"
    summary: ClassVar[str] = "The warm-up takes most of the steps that the prompts give."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Compare the warm-up with the steps of the epochs."""
        known = context.run_config
        if "total_steps" in known:
            return SkippedCheck("the config states the steps, see CFG057")
        warmup, epochs = amount(known.get("warmup_steps")), amount(known.get("epochs"))
        if not warmup or not epochs or not fewest_prompts(known):
            return SkippedCheck(
                "warm-up steps, epochs and prompts per step are not known",
                advice_for_unknown(known, "warm-up steps, epochs and batch"),
            )
        if not context.table.is_complete:
            return ()
        steps = most_steps(known, len(context.rows))
        if not steps or warmup < WarmupLongerThanRun.largest_share * steps:
            return ()
        return (
            CheckFinding(
                "warning",
                f"The warm-up takes {warmup:.0f} steps, and {epochs:g} epochs of "
                f"{count_of(len(context.rows), 'prompt')} have at most {steps}.",
                ("Shorten the warm-up to a few per cent of the run, or train for more epochs.",),
                figures={"warmup": float(warmup), "steps": float(steps)},
            ),
        )

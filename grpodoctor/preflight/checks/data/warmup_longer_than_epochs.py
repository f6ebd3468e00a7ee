"""OPT102."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.rules.config.optimizer.warmup_longer_than_run import WarmupLongerThanRun
from grpodoctor.vocabulary.knobs import Setting


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
        warmup, epochs = _amount(known.get("warmup_steps")), _amount(known.get("epochs"))
        batch = _fewest_prompts(known)
        if "total_steps" in known or not warmup or not epochs or not batch:
            return SkippedCheck(
                "warm-up, epochs and prompts per step are not known", "pass --run-config FILE"
            )
        if not context.table.is_complete:
            return ()
        updates = max(_amount(known.get("updates_per_batch")), 1.0)
        steps = int(len(context.rows) / batch * epochs * updates)
        if not steps or warmup < WarmupLongerThanRun.largest_share * steps:
            return ()
        return (
            CheckFinding(
                "warning",
                f"The warm-up takes {warmup:.0f} steps, and {epochs:g} epochs of "
                f"{len(context.rows)} prompts have at most {steps}.",
                ("Shorten the warm-up to a few per cent of the run, or train for more epochs.",),
                figures={"warmup": float(warmup), "steps": float(steps)},
            ),
        )


def _amount(value: object) -> float:
    """A setting as a number; 0 if it is unknown or no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0.0
    return float(value)


def _fewest_prompts(known: Mapping[str, Setting]) -> float:
    """Prompts of a step, or those of a single process if the number of processes is not known."""
    group = _amount(known.get("group_size"))
    responses = _amount(known.get("responses_per_process"))
    return _amount(known.get("prompts_per_batch")) or (responses / group if group else 0.0)

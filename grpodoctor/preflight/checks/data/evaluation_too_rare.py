"""OPT103."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.run_length import advice_for_unknown, amount, most_steps
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck


class EvaluationTooRare(Check):
    """The run ends before its first evaluation.

    What it sees:
        The steps between two evaluations in the config (--run-config), and the steps of the run:
        those of the config, or those that the prompts, the prompts per step and the epochs give.

    Why it matters:
        No held-out accuracy shows whether the reward's growth is real, and which checkpoint is the
        best. transformers evaluates once at the end at most.

    What to do:
        Evaluate at least five times in a run.

    When it is wrong:
        Another job evaluates the checkpoints, or the run is resumed with more steps.

    References:
        transformers, TrainingArguments.eval_steps.
    """

    code: ClassVar[str] = "OPT103"
    name: ClassVar[str] = "run-ends-before-evaluation"
    summary: ClassVar[str] = "The run ends before its first evaluation."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Compare the interval of evaluations with the steps of the run."""
        known = context.run_config
        interval, steps = amount(known.get("evaluation_interval")), amount(known.get("total_steps"))
        if not steps and context.table.is_complete:
            steps = most_steps(known, len(context.rows))
        if not interval or not steps:
            return SkippedCheck(
                "the steps of the run and between evaluations are not known",
                advice_for_unknown(known, "the steps of the run and between evaluations"),
            )
        if interval <= steps:
            return ()
        return (
            CheckFinding(
                "warning",
                f"The run has {steps:.0f} steps, and the first evaluation is due after "
                f"{interval:.0f}.",
                ("Evaluate at least five times in a run: reduce the interval of evaluations.",),
                figures={"steps": steps, "interval": interval},
            ),
        )

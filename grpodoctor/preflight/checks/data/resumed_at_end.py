"""OPT104."""

from __future__ import annotations

import re
from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.run_length import advice_for_unknown, amount
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck

_RESUMED = re.compile(r"(?:^|\.)(?:resume_from_checkpoint|resume_from_path|resume_from)$")
_STEP = re.compile(r"(?:checkpoint|global_step|step|iter)[-_]?0*(\d+)/?$")


class ResumedAtEnd(Check):
    """The run resumes at its last step.

    What it sees:
        The checkpoint from which the config (--run-config) resumes, if its name contains the step
        (`checkpoint-400`, `global_step_400`), and the steps of the run.

    Why it matters:
        The trainer counts the steps of the checkpoint. It ends at once, with exit code 0, and the
        weights are those of the checkpoint.

    What to do:
        Raise the number of steps, or start from the checkpoint's weights as a new run.

    When it is wrong:
        The step in the folder's name counts something else.

    References:
        transformers, Trainer.train(resume_from_checkpoint).
    """

    code: ClassVar[str] = "OPT104"
    name: ClassVar[str] = "resumed-run-is-over"
    summary: ClassVar[str] = "The run resumes at its last step."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Compare the step of the checkpoint with the steps of the run."""
        steps = amount(context.run_config.get("total_steps"))
        found = [
            (key, value, int(match[1]))
            for key, value in context.flat_config.items()
            if _RESUMED.search(key) and isinstance(value, str) and (match := _STEP.search(value))
        ]
        if not found or not steps:
            return SkippedCheck(
                "the config resumes no run, or its steps are not known",
                advice_for_unknown(context.run_config, "the steps of the run"),
            )
        key, path, step = found[0]
        if step < steps:
            return ()
        return (
            CheckFinding(
                "critical",
                f"The run resumes at step {step} of {steps:.0f}, so that no step is trained.",
                (f"Raise the number of steps, or do not set {key}.",),
                (path,),
                {"step": float(step), "steps": steps},
            ),
        )

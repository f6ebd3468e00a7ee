"""DAT125."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.run_length import advice_for_unknown
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.support.numbers import count_of


class FewerThanBatch(Check):
    """The file has fewer prompts than a step of the run takes.

    What it sees:
        The number of usable rows, and the prompts per step in the run's config (--run-config).

    Why it matters:
        Data loaders drop an incomplete batch: the epoch has no step, and the run ends at once or
        fails. Those that fill it up repeat prompts within one step.

    What to do:
        Reduce the prompts per step, or add prompts.

    When it is wrong:
        The run mixes this file with others.

    References:
        None.
    """

    code: ClassVar[str] = "DAT125"
    name: ClassVar[str] = "fewer-prompts-than-batch"
    summary: ClassVar[str] = "The file has fewer prompts than a step of the run takes."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Compare the rows with the batch."""
        batch, rows = context.batch_prompts, len(context.rows)
        if batch is None:
            return SkippedCheck(
                "the prompts per step are not known",
                advice_for_unknown(context.run_config, "the prompts per step"),
            )
        if rows >= batch or not context.table.is_complete:
            return ()
        return (
            CheckFinding(
                "critical",
                f"The file has {count_of(rows, 'prompt')}, and a step of the config takes {batch}.",
                (f"Set the prompts per step to at most {rows}, or add prompts.",),
                figures={"prompts": rows, "batch": batch},
            ),
        )

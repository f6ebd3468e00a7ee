"""DAT134."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.config_columns import config_columns
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck

_NAMED = 12


class MissingColumns(Check):
    """The config reads a column that the file does not have.

    What it sees:
        The columns that the config (--run-config) names, such as verl's `data.prompt_key` and
        OpenRLHF's `label_key`, and the columns of the file.

    Why it matters:
        The run ends when the data is loaded, or reads another column than the one that was
        checked.

    What to do:
        Name an existing column in the config, or rename the column of the file.

    When it is wrong:
        The run reads another file than the one that was given with --prompts.

    References:
        verl, verl/utils/dataset/rl_dataset.py; OpenRLHF, openrlhf/datasets/prompts_dataset.py.
    """

    code: ClassVar[str] = "DAT134"
    name: ClassVar[str] = "column-of-config-missing"
    summary: ClassVar[str] = "The config reads a column that the file does not have."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Compare the config's columns with those of the file."""
        named = config_columns(context.flat_config)
        if not named:
            if not context.flat_config:
                return SkippedCheck("no config was given", "pass --run-config FILE")
            return SkippedCheck("the config names no column")
        columns = {str(name) for row in context.rows for name in row.columns}
        if not columns:
            return SkippedCheck("the prompts have no columns", "pass a file with columns")
        missing = [each for each in named if each[2] not in columns]
        return tuple(
            CheckFinding(
                "critical",
                f"The config reads the {content} from the column {column!r} ({key}), which the "
                "file does not have.",
                (f"Set {key} to a column of the file: {', '.join(sorted(columns)[:_NAMED])}.",),
            )
            for key, content, column in missing
        )

"""DAT124."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.preflight.answers.kinds.tool_calls import (
    Tool,
    calls_in,
    problem_of,
    tools_in_text,
    tools_of,
)
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.support.numbers import part_of

_SHOWN = 4


class ToolSchemas(Check):
    """Answers call tools that their row does not have.

    What it sees:
        Rows with a column `tools`, or with JSON schemas of tools in their prompt, whose answer is a
        tool call in JSON, alone or in tags. Reports names that no tool has, arguments that the
        schema does not have, required arguments that are missing, and values of another type than
        the schema's or outside its choices.

    Why it matters:
        The model reads the schema and calls the tool as it says. The reward expects another call,
        so correct calls earn nothing, or the model learns calls that the environment refuses.

    What to do:
        Use the names of the schema in the answers, or correct the schema.

    When it is wrong:
        The trainer replaces the tools of the data by its own.

    References:
        None.
    """

    code: ClassVar[str] = "DAT124"
    name: ClassVar[str] = "tool-calls-outside-schema"
    summary: ClassVar[str] = "Answers call tools or arguments that the row's tools do not have."
    min_share: ClassVar[float] = 0.01
    """Share of rows from which the check reports."""
    critical_share: ClassVar[float] = 0.5

    def examine(self, context: PreflightContext) -> CheckResult:
        """Compare the calls with the tools."""
        rows = [(row, tools) for row in context.rows if row.answer and (tools := _tools(row))]
        if not rows:
            return SkippedCheck("no row has tools and an answer", "add a column tools")
        unfit = [(row, problem) for row, tools in rows if (problem := _problem(row, tools))]
        share = len(unfit) / len(rows)
        if not unfit or share < self.min_share:
            return ()
        return (
            CheckFinding(
                "critical" if share >= self.critical_share else "warning",
                f"{part_of(len(unfit), len(rows), 'answers', 'do')} "
                "not fit the schema of the tools: "
                f"{unfit[0][1]}.",
                ("Use the names and types of the schema in the answers, or correct the schema.",),
                tuple(f"{row.location}: {problem}" for row, problem in unfit[:_SHOWN]),
                {"share": share},
            ),
        )


def _tools(row: PromptRow) -> dict[str, Tool]:
    return tools_of(row.columns) or tools_in_text(row.texts())


def _problem(row: PromptRow, tools: Mapping[str, Tool]) -> str:
    """The first call of the answer that no tool of the row fits; empty if all fit."""
    problems = (problem_of(call, tools) for call in calls_in(row.answer or ""))
    return next(filter(None, problems), "")

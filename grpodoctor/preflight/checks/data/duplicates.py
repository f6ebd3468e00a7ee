"""DAT107."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck

_SHOWN = 5


class DuplicatePrompts(Check):
    """The data contains the same prompt more than once.

    What it sees:
        Prompts that differ only in whitespace and case; duplicates with different answers; and
        held-out prompts (--held-out) that are also training prompts.

    Why it matters:
        Duplicates count twice, and a duplicate in the held-out data makes its accuracy
        meaningless. Duplicates with different answers reward and punish the same response.

    What to do:
        Keep one of each, and correct the contradictory ones.

    When it is wrong:
        A task may repeat a prompt on purpose, with a hidden state that decides the answer.

    References:
        None.
    """

    code: ClassVar[str] = "DAT107"
    name: ClassVar[str] = "duplicate-prompts"
    summary: ClassVar[str] = "The data contains the same prompt more than once."
    warning_share: ClassVar[float] = 0.05
    """Share of rows from which duplicates are a warning."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Group prompts by their text."""
        if not context.rows:
            return SkippedCheck("no prompts were given", "add --prompts")
        groups: dict[str, list[PromptRow]] = defaultdict(list)
        for row in context.rows:
            groups[_normalized(row)].append(row)
        duplicates = [rows for rows in groups.values() if len(rows) > 1]
        return (
            *self._repeated(duplicates, len(context.rows)),
            *_contradictory(duplicates),
            *_leaked(context.held_out, groups),
        )

    def _repeated(self, duplicates: list[list[PromptRow]], total: int) -> Iterator[CheckFinding]:
        repeated = sum(len(rows) - 1 for rows in duplicates)
        if repeated:
            yield CheckFinding(
                "warning" if repeated / total >= self.warning_share else "info",
                f"{repeated} of {total} prompts repeat an earlier one.",
                ("Keep one of each.",),
                tuple(" = ".join(row.location for row in rows[:3]) for rows in duplicates[:_SHOWN]),
                {"share": repeated / total},
            )


def _contradictory(duplicates: list[list[PromptRow]]) -> Iterator[CheckFinding]:
    contradictory = [
        rows
        for rows in duplicates
        if len({str(row.answer).strip() for row in rows if row.answer is not None}) > 1
    ]
    if contradictory:
        yield CheckFinding(
            "warning",
            f"{len(contradictory)} repeated prompts have contradictory answers.",
            ("Check them: at least one of the answers is wrong.",),
            tuple(
                ", ".join(f"{row.location}: {row.answer}" for row in rows[:3])
                for rows in contradictory[:_SHOWN]
            ),
        )


def _normalized(row: PromptRow) -> str:
    """The prompt's text without differences in white space and case."""
    conversation = "\n".join(str(message.get("content")) for message in row.messages)
    return " ".join((conversation or row.prompt).split()).casefold()


def _leaked(
    held_out: Sequence[PromptRow], groups: Mapping[str, Sequence[PromptRow]]
) -> Iterator[CheckFinding]:
    """Held-out prompts that are also training prompts."""
    leaked = [row for row in held_out if _normalized(row) in groups]
    if leaked:
        yield CheckFinding(
            "warning",
            f"{len(leaked)} of {len(held_out)} held-out prompts are also training prompts.",
            ("Remove them from the training data.",),
            tuple(f"{row.location} = {groups[_normalized(row)][0].location}" for row in leaked)[
                :_SHOWN
            ],
            {"leaked": len(leaked) / len(held_out)},
        )

"""DAT107."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import ClassVar

from grpodoctor.preflight.answers.multiple_choice import options_of, without_option_order
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.preflight.texts.affixes import Words
from grpodoctor.preflight.texts.normal_form import loose_words_of
from grpodoctor.preflight.texts.overlap import overlapping

_SHOWN = 5


class DuplicatePrompts(Check):
    """The data contains the same prompt more than once.

    What it sees:
        Prompts that differ only in whitespace and case; duplicates with different answers; and
        held-out prompts (--held-out) that are also training prompts. Held-out prompts are compared
        by their words, numbers and operators, without punctuation, cosmetic LaTeX, currencies, the
        order of lettered options, system messages, and instructions that most prompts of a file
        begin or end with; 5.00 equals 5, and so does five. A held-out prompt also counts if
        it contains a training prompt of at least eight words, or is contained in one.

    Why it matters:
        Duplicates count twice, and a duplicate in the held-out data makes its accuracy
        meaningless. Duplicates with different answers reward and punish the same response.

    What to do:
        Keep one of each, and correct the contradictory ones. Remove held-out prompts from the
        training data.

    When it is wrong:
        A task may repeat a prompt on purpose, with a hidden state that decides the answer.
        Paraphrases and translations are not found.

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
            groups[" ".join(row.identity().split()).casefold()].append(row)
        duplicates = [rows for rows in groups.values() if len(rows) > 1]
        return (
            *self._repeated(duplicates, len(context.rows)),
            *_contradictory(duplicates),
            *_leaked(context.held_out, context.rows),
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


def _leaked(held_out: Sequence[PromptRow], rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    """Held-out prompts that are also training prompts."""
    if not held_out:
        return
    pairs = overlapping([_question(row) for row in held_out], [_question(row) for row in rows])
    if pairs:
        yield CheckFinding(
            "warning",
            f"{len(pairs)} of {len(held_out)} held-out prompts are also training prompts.",
            ("Remove them from the training data.",),
            tuple(
                f"held-out {held_out[index].location} = {rows[other].location}"
                for index, other in sorted(pairs.items())[:_SHOWN]
            ),
            {"leaked": len(pairs) / len(held_out)},
        )


def _question(row: PromptRow) -> Words:
    """The words of the user's messages; system messages differ between training and tests."""
    texts = [without_option_order(text) for text in row.user_texts() or [row.prompt]]
    return loose_words_of("\n".join([*texts, *sorted(options_of(row))]))

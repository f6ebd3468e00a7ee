"""DAT111."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from grpodoctor.preflight.answers.stated_answers import rows_stating_answer
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.columns import text_of
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.support.numbers import part_of

_SHOWN = 4

_FULL_STOPS = (".", "!", "?", "\u3002", "\uff01", "\uff1f")
"""Ends of a sentence: an intended beginning of a response goes on, as in `<think>` or "Let's"."""
_CONTINUES = frozenset({"trl"})
"""Frameworks in which the model continues a last message of the assistant."""


class AnswerInPrompt(Check):
    """The prompt contains its own answer.

    What it sees:
        Prompts that state their answer: after words such as "answer:", after ####, in a box or in
        answer tags, as their last line, or as the whole solution. Also any short label, in any
        message, whose value is the answer in nearly all rows with this label (`Key: 1231`), and
        names of files that contain it (`cat_0012.jpg`). Chance
        is subtracted: the check counts how often a prompt states the answer of a row at random. It
        also reports conversations that end with a message of the assistant, which is usually the
        answer.

    Why it matters:
        The model learns to copy. Every group is all-correct, so there is no gradient, or the reward
        rises and nothing is learned. Copying is not possible in the evaluation.

    What to do:
        Remove the answer from the prompt. Keep it in its own column, which only the reward function
        reads.

    When it is wrong:
        In extractive questions the answer is part of a passage. It is reported only where the
        prompt marks it as the answer; records of several labelled fields, and labels that the
        question mentions, are left out. A whole solution in the prompt does not count where short
        answers are spans of the passage, or the prompts ask for a summary or a quotation.
        A last message of the assistant that is the same in all
        rows is the intended beginning of the response, unless it ends with a full stop. With a
        config of TRL, where the model continues it in any case, it is no warning.

    References:
        None.
    """

    code: ClassVar[str] = "DAT111"
    name: ClassVar[str] = "answer-in-prompt"
    summary: ClassVar[str] = "The prompt contains its own answer."
    min_share: ClassVar[float] = 0.01
    """Share of prompts, above chance, from which the check reports: accidents are rarer."""
    critical_share: ClassVar[float] = 0.5
    """Share of prompts from which most of the run is lost."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Search each prompt for its answer."""
        if not context.rows:
            return SkippedCheck("no prompts were given", "add --prompts")
        return (*self._answered_conversations(context), *self._stated_answers(context))

    def _answered_conversations(self, context: PreflightContext) -> Iterator[CheckFinding]:
        """Conversations whose last message is the assistant's, and not the same everywhere."""
        ends = [
            (row, text_of(row.messages[-1].get("content")))
            for row in context.rows
            if row.messages and row.messages[-1]["role"] == "assistant"
        ]
        share = len(ends) / len(context.rows)
        texts = {text.strip() for _, text in ends}
        # A line break or blank behind the full stop is where the response begins.
        if len(texts) == 1 and all(text.endswith(_FULL_STOPS) for _, text in ends):
            yield CheckFinding(
                "info" if context.framework in _CONTINUES else "warning",
                f"{part_of(len(ends), len(context.rows), 'conversations', 'end')} "
                "with a finished message of "
                "the assistant.",
                ("Remove it: TRL lets the model continue this message, and verl opens another "
                 "turn of the assistant behind it.",),
                (f"{ends[0][0].location}: {ends[0][1][:80]!r}",),
                {"share": share},
            )  # fmt: skip
        if len(texts) < 2:
            return
        yield CheckFinding(
            "critical" if share >= self.critical_share else "warning",
            f"{part_of(len(ends), len(context.rows), 'conversations', 'end')} "
            "with an assistant message, "
            "probably the answer.",
            ("Remove the assistant's last message; keep its answer in a column of its own.",),
            tuple(f"{row.location}: {text[:80]!r}" for row, text in ends[:_SHOWN]),
            {"share": share},
        )

    def _stated_answers(self, context: PreflightContext) -> Iterator[CheckFinding]:
        rows = [row for row in context.rows if row.answer]
        is_stating, chance = rows_stating_answer(rows)
        stating = [row for row, states in zip(rows, is_stating, strict=True) if states]
        share = len(stating) / max(len(rows), 1)
        if not stating or share - chance < self.min_share:
            return
        yield CheckFinding(
            "critical" if share >= self.critical_share else "warning",
            f"{part_of(len(stating), len(rows), 'prompts', 'contain')} their answer.",
            ("Remove the answer from these prompts; keep it in a column of its own.",),
            tuple(f"{row.location}: answer {row.answer!r:.80}" for row in stating[:_SHOWN]),
            {"share": share},
        )

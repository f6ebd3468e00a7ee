"""DAT107."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import ClassVar

from grpodoctor.preflight.base import Check, Outcome, Remark, Skipped
from grpodoctor.preflight.patient import Patient, Row

_SHOWN = 5


class DuplicatePrompts(Check):
    """The same prompt stands in the data more than once.

    What it sees:
        Prompts that are equal but for white space and case; and, among them, those whose answers
        are different.

    Why it matters:
        Twins count double, and one of them in the held-out part makes its figure a lie. Twins with
        different answers reward and punish the same response.

    What to do:
        Keep one of each, and look at those that contradict each other.

    When it is wrong:
        A task may repeat a prompt on purpose, with a hidden state that decides the answer.

    References:
        None.
    """

    code: ClassVar[str] = "DAT107"
    name: ClassVar[str] = "duplicate-prompts"
    summary: ClassVar[str] = "The same prompt stands in the data more than once."
    many: ClassVar[float] = 0.05
    """Share of rows from which on it is a warning."""

    def examine(self, patient: Patient) -> Outcome:
        """Group prompts by their text."""
        if not patient.rows:
            return Skipped("no prompts were given", "give --prompts")
        groups: dict[str, list[Row]] = defaultdict(list)
        for row in patient.rows:
            spoken = "\n".join(str(message.get("content")) for message in row.messages)
            groups[" ".join((spoken or row.prompt).split()).casefold()].append(row)
        twins = [rows for rows in groups.values() if len(rows) > 1]
        return tuple(self._remarks(twins, len(patient.rows)))

    def _remarks(self, twins: list[list[Row]], total: int) -> Iterator[Remark]:
        spare = sum(len(rows) - 1 for rows in twins)
        contradicting = [
            rows
            for rows in twins
            if len({str(row.answer).strip() for row in rows if row.answer is not None}) > 1
        ]
        if spare:
            yield Remark(
                "warning" if spare / total >= self.many else "info",
                f"{spare} of {total} prompts are there already",
                ("keep one of each",),
                tuple(" = ".join(row.place for row in rows[:3]) for rows in twins[:_SHOWN]),
                {"share": spare / total},
            )
        if contradicting:
            yield Remark(
                "warning",
                f"{len(contradicting)} prompts have answers that contradict each other",
                ("look at them: one of the answers is wrong",),
                tuple(
                    ", ".join(f"{row.place}: {row.answer}" for row in rows[:3])
                    for rows in contradicting[:_SHOWN]
                ),
            )

"""DAT107."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from grpodoctor.preflight.base import Check, Outcome, Remark, Skipped
from grpodoctor.preflight.context import Patient, Row

_SHOWN = 5


class DuplicatePrompts(Check):
    """The same prompt stands in the data more than once.

    What it sees:
        Prompts that are equal but for white space and case; among them, those whose answers are
        different; and held-out prompts (--held-out) that are training prompts as well.

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
            groups[_key(row)].append(row)
        twins = [rows for rows in groups.values() if len(rows) > 1]
        return (*self._remarks(twins, len(patient.rows)), *_leaked(patient.held_out, groups))

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


def _key(row: Row) -> str:
    """What two prompts have in common that are the same to a reader."""
    spoken = "\n".join(str(message.get("content")) for message in row.messages)
    return " ".join((spoken or row.prompt).split()).casefold()


def _leaked(held_out: Sequence[Row], groups: Mapping[str, Sequence[Row]]) -> Iterator[Remark]:
    """Held-out prompts that the model is trained on."""
    leaks = [row for row in held_out if _key(row) in groups]
    if leaks:
        yield Remark(
            "warning",
            f"{len(leaks)} of {len(held_out)} held-out prompts are training prompts: their figure "
            "is no held-out one",
            ("take them out of the training data",),
            tuple(f"{row.place} = {groups[_key(row)][0].place}" for row in leaks[:_SHOWN]),
            {"leaked": len(leaks) / len(held_out)},
        )

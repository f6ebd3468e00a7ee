"""REW102."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import ClassVar

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers import Case, bad_cases
from grpodoctor.preflight.base import Check, Outcome, Remark
from grpodoctor.preflight.gold import NEEDS_ANSWERS, NEEDS_REWARD, Gold
from grpodoctor.preflight.patient import Judge, Patient, Row, Verdict
from grpodoctor.rules.base import Severity

_SHOWN = 3
_LENGTH = 120
_ADVICE = {
    "wrong": "compare answers by their value, and look at the rows that are named",
    "empty": "give nothing for an empty response",
    "form without an answer": "pay for the form only where there is an answer in it, or far less",
    "the prompt again": "read the response alone, never the prompt with it",
    "all answers at once": "take the last answer alone, or none where there are several",
}


class UndeservedReward(Check):
    """A response that deserves nothing is paid like the right answer.

    What it sees:
        For rows whose right answer is paid: a wrong answer, an empty response, the form without an
        answer in it, the prompt again, and several answers at once are rewarded too. The share of
        rows in which such a one is worth as much as the right answer.

    Why it matters:
        Training finds it: what is paid for nothing is what the model will do, and the curve of the
        reward looks healthy while it does.

    What to do:
        Close the hole that is named before the run.

    When it is wrong:
        A row's answer can be so short that another text contains it (a digit, a letter); that is a
        hole of the parser as well, but a small one. Of several answers at once the last is the
        right one, so that a parser which takes the last is cheated by this test: it is a warning.

    References:
        Strangers' runs in which rewards rose and accuracy fell.
    """

    code: ClassVar[str] = "REW102"
    name: ClassVar[str] = "undeserved-reward"
    summary: ClassVar[str] = "A response that deserves nothing is paid like the right answer."
    many: ClassVar[float] = 0.05
    """Share of rows from which on it is told: wrong answers that are right by chance are rarer."""

    def examine(self, patient: Patient) -> Outcome:
        """Reward what deserves nothing."""
        if patient.judge is None:
            return NEEDS_REWARD
        gold = patient.gold
        if gold is None or not any(gold.paid):
            return NEEDS_ANSWERS
        paid = self._paid(patient, gold)
        return tuple(self._remarks(paid, sum(gold.paid)))

    def _paid(self, patient: Patient, gold: Gold) -> dict[str, list[tuple[str, str]]]:
        """By kind, place and text of what was paid as much as the right answer."""
        paid: dict[str, list[tuple[str, str]]] = defaultdict(list)
        rows = [row for row, right in zip(gold.rows, gold.paid, strict=True) if right]
        rewards = [each for each, right in zip(gold.rewards, gold.paid, strict=True) if right]
        cases: list[list[Case]] = [bad_cases(row, patient.rows, gold.form) for row in rows]
        for kind in range(len(cases[0])):
            texts = [each[kind].text for each in cases]
            verdicts = self._judged(patient.judge, rows, texts)
            for row, reward, case, verdict in zip(rows, rewards, cases, verdicts, strict=False):
                if verdict.reward >= reward:
                    paid[case[kind].kind].append((row.place, case[kind].text))
        return paid

    def _judged(self, judge: Judge | None, rows: list[Row], texts: list[str]) -> list[Verdict]:
        """None where the function fails: that is what REW103 tells."""
        try:
            return judge(rows, texts) if judge else []
        except DataError:
            return []

    def _remarks(self, paid: dict[str, list[tuple[str, str]]], rows: int) -> Iterator[Remark]:
        for kind, cases in paid.items():
            share = len(cases) / rows
            if share < self.many:
                continue
            mild = kind == "all answers at once"
            severity: Severity = "critical" if share > 0.5 and not mild else "warning"
            yield Remark(
                severity,
                f"{kind}: paid like the right answer in {len(cases)} of {rows} rows",
                (_ADVICE[kind],),
                tuple(f"{place}: {text[:_LENGTH]!r}" for place, text in cases[:_SHOWN]),
                {"share": share},
            )

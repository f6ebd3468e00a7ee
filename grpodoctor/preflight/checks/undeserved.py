"""REW102."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import ClassVar

from grpodoctor.errors import DataError
from grpodoctor.preflight.base import Check, Outcome, Remark
from grpodoctor.preflight.constructed_answers import Case, bad_cases
from grpodoctor.preflight.context import Judge, Patient, Row, Verdict
from grpodoctor.preflight.reference_answers import NEEDS_ANSWERS, NEEDS_REWARD, NOTHING_PAID
from grpodoctor.rules.base import Severity

_SHOWN = 3
_LENGTH = 120
_ADVICE = {
    "wrong": "compare answers by their value, and look at the rows that are named",
    "wrong at great length": "pay nothing for length where the answer is wrong",
    "empty": "give nothing for an empty response",
    "form without an answer": "pay for the form only where there is an answer in it, or far less",
    "the prompt again": "read the response alone, never the prompt with it",
    "all answers at once": "take the last answer alone, or none where there are several",
}


class UndeservedReward(Check):
    """A response that deserves nothing is paid like the right answer.

    What it sees:
        For rows whose right answer is worth something: a wrong answer, short and long, an empty
        response, the form without an answer in it, the prompt again, and several answers at once
        are rewarded too. The share of rows in which such a one is worth as much as the right
        answer; or, if that is small, how much of the right answer's reward it is worth in the mean.

    Why it matters:
        Training finds it: what is paid for nothing is what the model will do, and the curve of the
        reward looks healthy while it does.

    What to do:
        Close the hole that is named before the run.

    When it is wrong:
        A row's answer can be so short that another text contains it (a digit, a letter); that is a
        hole of the parser as well, but a small one. Rewards that are judged by comparing the
        responses of a group with each other say little here.

    References:
        Visual-RFT issue 176: an empty answer is part of any text, and was paid.
    """

    code: ClassVar[str] = "REW102"
    name: ClassVar[str] = "undeserved-reward"
    summary: ClassVar[str] = "A response that deserves nothing is paid like the right answer."
    many: ClassVar[float] = 0.05
    """Share of rows from which on it is told: wrong answers that are right by chance are rarer."""
    dear: ClassVar[float] = 0.5
    """Share of the right answer's reward above which it is told: the form is then worth more than
    being right."""

    def examine(self, patient: Patient) -> Outcome:
        """Reward what deserves nothing."""
        if patient.judge is None:
            return NEEDS_REWARD
        gold = patient.gold
        if gold is None:
            return NEEDS_ANSWERS
        kept = [
            index
            for index, (paid, reward) in enumerate(zip(gold.paid, gold.rewards, strict=True))
            if paid or reward > 0  # where an empty response is paid as much, that is to be told
        ]
        if not kept:
            return NOTHING_PAID
        cases: list[list[Case]] = [
            bad_cases(gold.rows[at].prompt, gold.answers[at], gold.answers, gold.form)
            for at in kept
        ]
        remarks: list[Remark] = []
        for kind in zip(*cases, strict=True):
            rows = [gold.rows[at] for at in kept]
            verdicts = self._judged(patient.judge, rows, [case.text for case in kind])
            if verdicts:
                rights = [gold.rewards[at] for at in kept]
                floors = [max(gold.nothing[at], 0.0) for at in kept]
                remarks += self._remarks(rows, kind, verdicts, rights, floors)
        return remarks

    def _judged(self, judge: Judge | None, rows: list[Row], texts: list[str]) -> list[Verdict]:
        """None where the function fails: that is what REW103 tells."""
        try:
            return judge(rows, texts) if judge else []
        except DataError:
            return []

    def _remarks(
        self,
        rows: Sequence[Row],
        cases: Sequence[Case],
        verdicts: Sequence[Verdict],
        rights: Sequence[float],
        floors: Sequence[float],
    ) -> Iterator[Remark]:
        kind = cases[0].kind
        worth = [verdict.reward for verdict in verdicts]
        paid = [at for at, right in enumerate(rights) if worth[at] >= right]
        shown = tuple(f"{rows[at].place}: {cases[at].text[:_LENGTH]!r}" for at in paid[:_SHOWN])
        share = len(paid) / len(rows)
        if share >= self.many:
            mild = kind == "all answers at once"
            severity: Severity = "critical" if share > 0.5 and not mild else "warning"
            told = f"{kind}: paid like the right answer in {len(paid)} of {len(rows)} rows"
            yield Remark(severity, told, (_ADVICE[kind],), shown, {"share": share})
            return
        of_right = _share_of(worth, rights, floors)
        if of_right > self.dear:
            told = f"{kind}: worth {of_right:.0%} of what the right answer is paid"
            shown = (repr(cases[0].text[:_LENGTH]),)
            yield Remark("warning", told, (_ADVICE[kind],), shown, {"worth": of_right})


def _share_of(worth: Sequence[float], rights: Sequence[float], floors: Sequence[float]) -> float:
    """Mean share of the right answer's reward, above what an empty response is paid."""
    shares = [
        (each - floor) / (right - floor)
        for each, right, floor in zip(worth, rights, floors, strict=True)
        if right > floor
    ]
    return fmean(shares) if shares else 0.0

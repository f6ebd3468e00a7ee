"""REW101."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.preflight.base import Check, Outcome, Remark
from grpodoctor.preflight.constructed_answers import formats_of, written
from grpodoctor.preflight.context import Patient
from grpodoctor.preflight.reference_answers import NEEDS_ANSWERS, NEEDS_REWARD, Gold
from grpodoctor.rules.base import Severity

_SHOWN = 4


class GoldNotRewarded(Check):
    """The reward function does not pay for the right answer.

    What it sees:
        The answers of the data are written in the ways that are usual (in a box, behind ####, in
        answer tags, …), or in the one that you say, and rewarded. In no way, or only for some of
        the rows, is the right answer worth more than nothing at all; or, from a function that tells
        most of them from wrong ones, more than a wrong one.

    Why it matters:
        Nothing can be learnt from a reward that a right answer does not raise; the run looks like
        one whose prompts are too hard. A parser that misses the answer is the most frequent cause
        of rewards that stay at zero.

    What to do:
        Look at the rows that are named. Say how answers are written with --gold-format, and tell
        the model so in the prompt.

    When it is wrong:
        A reward that runs code or asks a judge may need more than a short answer; give a full
        solution in the answer's column, or a --gold-format.

    References:
        TRL issue 3903: the form is learnt, accuracy stays at zero.
    """

    code: ClassVar[str] = "REW101"
    name: ClassVar[str] = "gold-not-rewarded"
    summary: ClassVar[str] = "The reward function does not pay for the right answer."
    most: ClassVar[float] = 0.5
    """Share of answers that are not paid, from which on hardly anything can be learnt."""

    def examine(self, patient: Patient) -> Outcome:
        """Reward the data's own answers."""
        if patient.judge is None:
            return NEEDS_REWARD
        gold = patient.gold
        if gold is None:
            return NEEDS_ANSWERS
        missed = [row for row, miss in zip(gold.rows, gold.missed, strict=True) if miss]
        if not missed:
            return ()
        shown = tuple(f"{row.place}: {row.answer}" for row in missed[:_SHOWN])
        if len(missed) == len(gold.rows):
            forms = len(formats_of(patient.plan))
            told = (
                f"none of {len(gold.rows)} right answers is worth more than an empty one"
                f"{_worth(gold)}, in any of {forms} forms"
            )
            return (Remark("critical", told, (_FORM, _PARSER), shown),)
        share = len(missed) / len(gold.rows)
        told = (
            f"{len(missed)} of {len(gold.rows)} right answers are worth no more than nothing or a "
            f"wrong one, written as {gold.name}: {written(gold.form, 'ANSWER')!r}"
        )
        severity: Severity = "critical" if share > self.most else "warning"
        return (Remark(severity, told, (_PARSER,), shown, {"share": share}),)


def _worth(gold: Gold) -> str:
    """What an empty response is worth, if it is worth anything."""
    paid = [each for each in gold.nothing if each > 0]
    return f" (worth {max(paid):.3g} in {len(paid)} rows)" if paid else ""


_FORM = "say how a right answer is written with --gold-format"
_PARSER = "let the reward function's parser tell what it makes of these answers"

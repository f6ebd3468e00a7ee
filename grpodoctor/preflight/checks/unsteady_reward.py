"""REW103."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from grpodoctor.errors import DataError
from grpodoctor.preflight.base import Check, Outcome, Remark, Skipped
from grpodoctor.preflight.constructed_answers import written
from grpodoctor.preflight.context import Judge, Patient, Row
from grpodoctor.preflight.reference_answers import NEEDS_REWARD

_ODD = {
    "an empty response": "",
    "white space alone": " \n\t ",
    "an open box": "\\boxed{",
    "an open thought": "<think>\nand so on",
    "a long repetition": "so " * 2000,
    "characters of many kinds": "\u0000\u202e\U0001f600 \u00bd \u221a2 \uff11\uff12",
    "a number too large": "9" * 400,
    "not a number": "nan",
    "a hostile expression": "9**9**9**9",
}


class UnsteadyReward(Check):
    """The reward function fails on what models write, or says something else the second time.

    What it sees:
        Odd responses (empty, cut in the middle of a form, very long, strange characters, huge
        numbers) are rewarded; the function raises, hangs, or returns what is no number. The same
        responses are rewarded twice, and in the opposite order; the rewards differ.

    Why it matters:
        A model writes all of these sooner or later, and a reward that raises ends the run at three
        in the morning. One that depends on chance or on its neighbours in the batch is noise that
        no group can average out.

    What to do:
        Catch what the parser raises and return the reward of a wrong answer. Seed a judge.

    When it is wrong:
        A model as a judge is noisy by nature; then the spread that is told is what the advantages
        have to live with.

    References:
        None.
    """

    code: ClassVar[str] = "REW103"
    name: ClassVar[str] = "unsteady-reward"
    summary: ClassVar[str] = "The reward function fails on odd responses, or is not the same twice."

    noise: ClassVar[float] = 1e-5
    """Difference of two rewards that float32 leaves in another order of a batch."""

    def examine(self, patient: Patient) -> Outcome:
        """Reward odd responses, and the same ones twice."""
        if patient.judge is None:
            return NEEDS_REWARD
        if not patient.rows:
            return Skipped("no prompts were given", "give --prompts")
        row = patient.rows[0]
        failures = tuple(self._failures(patient.judge, row))
        return failures or tuple(self._changes(patient))

    def _failures(self, judge: Judge, row: Row) -> Iterator[Remark]:
        failed = []
        for kind, text in _ODD.items():
            try:
                judge([row], [text])
            except DataError as error:
                failed.append(f"{kind}: {error.what}")
        if failed:
            yield Remark(
                "critical",
                f"the reward function fails on {len(failed)} of {len(_ODD)} odd responses",
                ("have it return the reward of a wrong answer for whatever it cannot read",),
                tuple(failed),
            )

    def _changes(self, patient: Patient) -> Iterator[Remark]:
        gold = patient.gold
        if patient.judge is None or gold is None:
            return
        texts = [written(gold.form, answer) for answer in gold.answers]
        backwards = patient.judge(gold.rows[::-1], texts[::-1])[::-1]
        spread = [
            abs(verdict.reward - before)
            for verdict, before in zip(backwards, gold.rewards, strict=True)
        ]
        changed = sum(each > self.noise for each in spread)
        if changed:
            yield Remark(
                "warning",
                f"{changed} of {len(texts)} rewards differ when the same responses are judged "
                f"again in the opposite order, by up to {max(spread):.3g}",
                ("seed what is random in it, and judge each response by itself",),
                figures={"largest": max(spread)},
            )

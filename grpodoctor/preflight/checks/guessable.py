"""DAT108."""

from __future__ import annotations

import re
from collections import Counter
from typing import ClassVar

from grpodoctor.preflight.base import Check, Outcome, Remark, Skipped
from grpodoctor.preflight.gold import NEEDS_ANSWERS
from grpodoctor.preflight.patient import Patient

_CHOICE = re.compile(r"\(?([A-Ja-j])\)?\.?")
_FEWEST = 20


class GuessableAnswers(Check):
    """Many answers can be guessed.

    What it sees:
        Answers that are letters of a choice, yes or no, or of which one or a few are very frequent;
        the share of rows that one gets right by always giving the most frequent one, or by guessing
        among them; and, where an engine was given, how the model's pass rate compares.

    Why it matters:
        A guess is paid like a thought. With four choices a quarter of the responses are rewarded
        for nothing, groups have variance where there is no knowledge, and the model learns to
        answer at once: the response gets shorter and the held-out accuracy stays where it is.

    What to do:
        Ask for the value instead of the letter, leave choices out, or ask each question in several
        orders and pay only for all of them.

    When it is wrong:
        Judging right or wrong may be the task. Then it is a note to read accuracies against.

    References:
        Kimi k1.5, arXiv 2501.12599, section 2.1, leaves multiple choice and proofs out for this.
    """

    code: ClassVar[str] = "DAT108"
    name: ClassVar[str] = "guessable-answers"
    summary: ClassVar[str] = "Many answers can be guessed."
    references: ClassVar[tuple[str, ...]] = ("arXiv 2501.12599",)
    chance: ClassVar[float] = 0.2
    """Share of rows that guessing gets right, from which on it is told: a choice of five."""

    def examine(self, patient: Patient) -> Outcome:
        """Count answers."""
        answers = [
            " ".join(row.answer.split()).casefold()
            for row in patient.rows
            if row.answer is not None and row.answer.strip()
        ]
        if not answers:
            return NEEDS_ANSWERS
        if len(answers) < _FEWEST:
            return Skipped(f"{len(answers)} answers are too few to say", "give more prompts")
        counts = Counter(answers)
        letters = sum(count for text, count in counts.items() if _CHOICE.fullmatch(text))
        common, most = counts.most_common(1)[0]
        always = most / len(answers)
        guess = sum((count / len(answers)) ** 2 for count in counts.values())
        if always < self.chance:
            return ()
        figures = {"always": always, "guess": guess, "letters": letters / len(answers)}
        told = f"always answering {common!r} is right in {always:.0%} of {len(answers)} rows"
        if letters / len(answers) > 0.5:
            told += f"; {letters} answers are letters of a choice"
        if patient.bench is not None and (rate := patient.bench.pass_rate()) is not None:
            figures["pass_rate"] = rate
            told += f"; the model is right in {rate:.0%}"
        advice = "ask for the value instead of the letter, or leave such questions out"
        shown = tuple(f"{text!r}: {count}" for text, count in counts.most_common(5))
        return (Remark("warning", told, (advice,), shown, figures),)

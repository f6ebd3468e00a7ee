"""DAT108."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from grpodoctor.preflight.base import Check, Outcome, Remark, Skipped
from grpodoctor.preflight.choices import letter_of, options_of
from grpodoctor.preflight.constructed_answers import final_answer
from grpodoctor.preflight.context import Patient
from grpodoctor.preflight.reference_answers import NEEDS_ANSWERS

_ADVICE = "ask for the value instead of the letter, or leave such questions out"
_FEWEST = 20


class GuessableAnswers(Check):
    """Many answers can be guessed.

    What it sees:
        Questions of a choice: their options are a column of the data, or stand in the prompt behind
        letters; how many a blind guess gets right, and how many the key's most frequent letter.
        And answers of any kind of which one is very frequent (yes or no among them): the share of
        rows that one gets right by always giving it. Where an engine was given, the model's pass
        rate beside it.

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
    many: ClassVar[float] = 0.05
    """Share of questions of a choice among the prompts, from which on they are a warning."""
    certain: ClassVar[float] = 1e-3
    """Chance at which a key's most frequent letter comes as often by itself, below which the key is
    called skewed."""

    def examine(self, patient: Patient) -> Outcome:
        """Count options and answers."""
        known = [
            (row, final_answer(row.answer))
            for row in patient.rows
            if row.answer is not None and row.answer.strip()
        ]
        if not known:
            return NEEDS_ANSWERS
        options = [options_of(row, answer) for row, answer in known]
        choices = [
            (answer, count) for (_, answer), count in zip(known, options, strict=True) if count
        ]
        others = [answer for (_, answer), count in zip(known, options, strict=True) if not count]
        remarks = [*self._choices(patient, choices, len(known)), *self._frequent(patient, others)]
        if not remarks and len(known) < _FEWEST:
            return Skipped(f"{len(known)} answers are too few to say", "give more prompts")
        return remarks

    def _choices(
        self, patient: Patient, choices: list[tuple[str, int]], rows: int
    ) -> Iterator[Remark]:
        if not choices:
            return
        guess = sum(1 / count for _, count in choices) / len(choices)
        share = len(choices) / rows
        told = (
            f"{len(choices)} of {rows} questions are multiple choice, and a blind guess is right "
            f"in {guess:.0%} of them"
        )
        letters = Counter(filter(None, (_key(answer, count) for answer, count in choices)))
        figures = {"choices": share, "guess": guess}
        best = guess
        if letters:
            letter, most = letters.most_common(1)[0]
            always = most / letters.total()
            figures["always"] = always
            if self._is_skewed(most, letters.total(), guess, len(letters)):
                best = max(best, always)
                told += f"; the key is skewed: {letter} is right in {always:.0%}"
        told += _beside(patient, figures)
        severe = share >= self.many and best >= self.chance
        shown = tuple(f"{letter}: {count}" for letter, count in sorted(letters.items()))
        yield Remark("warning" if severe else "info", told, (_ADVICE,), shown, figures)

    def _is_skewed(self, most: int, rows: int, chance: float, letters: int) -> bool:
        from scipy.stats import binomtest

        by_chance = float(binomtest(most, rows, chance, alternative="greater").pvalue)
        return by_chance * letters < self.certain

    def _frequent(self, patient: Patient, answers: list[str]) -> Iterator[Remark]:
        """Answers that are frequent without being those of a choice that is to be seen."""
        if len(answers) < _FEWEST:
            return
        counts = Counter(" ".join(answer.split()).casefold() for answer in answers)
        common, most = counts.most_common(1)[0]
        always = most / len(answers)
        if always < self.chance:
            return
        letters = sum(count for text, count in counts.items() if letter_of(text))
        guess = sum((count / len(answers)) ** 2 for count in counts.values())
        figures = {"always": always, "guess": guess, "letters": letters / len(answers)}
        told = f"always answering {common!r} is right in {always:.0%} of {len(answers)} rows"
        if letters / len(answers) > 0.5:
            told += f"; {letters} answers are letters of a choice"
        told += _beside(patient, figures)
        shown = tuple(f"{text!r}: {count}" for text, count in counts.most_common(5))
        yield Remark("warning", told, (_ADVICE,), shown, figures)


def _key(answer: str, options: int) -> str:
    """The letter or the number of the right option; empty where it is told by its text."""
    return letter_of(answer, options) or (answer if answer.isdigit() else "")


def _beside(patient: Patient, figures: dict[str, float]) -> str:
    """The model's pass rate, for comparison."""
    rate = patient.bench.pass_rate() if patient.bench else None
    if rate is None:
        return ""
    figures["pass_rate"] = rate
    return f"; the model is right in {rate:.0%} of all responses"

"""DAT108."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import ClassVar

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.multiple_choice import count_options, option_letter
from grpodoctor.preflight.answers.reference_answers import REQUIRES_ANSWERS
from grpodoctor.preflight.answers.stated_answers import final_answer
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.rules.base import Severity
from grpodoctor.support.numbers import count_of

_BASELINE = "Use the guess rate as the baseline of accuracy."
_ADVICE = "Ask for the value instead of the letter, or leave such questions out."
_BALANCE = (
    "Sample rows so that answers are equally frequent, or weight the reward by the answer's rarity."
)
_MIN_ANSWERS = 20
_MAX_CLASSES = 10
"""Distinct answers of a task that is a choice."""


class GuessableAnswers(Check):
    """Many answers can be guessed.

    What it sees:
        Multiple-choice questions, whose options are a column of the data or follow letters in the
        prompt: the share that a blind guess gets right, and the share of the most frequent letter.
        For other answers, yes and no among them: the share of rows that the most frequent answer
        gets right. With an engine, the model's pass rate for comparison. Answers in equal shares
        have a known chance level, so they are a note. A skewed answer key is a warning if its most
        frequent answer avoids half of the errors of a blind guess. Other answers count by their
        reward: a function may pay the rarer ones more.

    Why it matters:
        A guess earns the same reward as reasoning. With four options, a quarter of the responses
        is rewarded for nothing, groups have variance without knowledge, and the model learns to
        answer at once: responses get shorter and held-out accuracy stays the same.

    What to do:
        Ask for the value instead of the letter, leave multiple-choice questions out, or ask each
        question in several orders and reward only if all answers are right. Sample classes in equal
        shares.

    When it is wrong:
        The task itself may be a choice in unequal shares. Then use the share of the most frequent
        answer as the baseline for accuracy.

    References:
        Kimi k1.5, arXiv 2501.12599, section 2.1, excludes multiple choice and proofs for this.
    """

    code: ClassVar[str] = "DAT108"
    name: ClassVar[str] = "guessable-answers"
    summary: ClassVar[str] = "Many answers can be guessed."
    references: ClassVar[tuple[str, ...]] = ("arXiv 2501.12599",)
    min_guess_rate: ClassVar[float] = 0.2
    """Share of rows that a guess gets right, from which the check reports: five options."""
    warning_share: ClassVar[float] = 0.05
    """Share of multiple-choice questions from which the check reports them."""
    max_p_value: ClassVar[float] = 1e-3
    """Probability of so frequent an answer by chance, below which the answer key is skewed."""
    min_excess: ClassVar[float] = 0.05
    """Excess over chance that is worth stating: a smaller one is no use to the model."""
    warning_skill: ClassVar[float] = 0.5
    """Part of a blind guess's errors that the most frequent answer avoids, from which the finding
    is a warning. Keys that people wrote are unequal too: 62% of the answers of BoolQ are yes, which
    avoids a quarter."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Count options and answers."""
        answered = [
            (row, final_answer(row.answer))
            for row in context.rows
            if row.answer is not None and row.answer.strip()
        ]
        if not answered:
            return REQUIRES_ANSWERS
        counted = [(answer, count_options(row, answer)) for row, answer in answered]
        choices = [(answer, options) for answer, options in counted if options]
        others = [answer for answer, options in counted if not options]
        if len(others) < self.warning_share * len(answered):
            others = []
        findings = [
            *self._multiple_choice(context, choices, len(answered)),
            *self._frequent_answer(context, others),
        ]
        if not findings and len(answered) < _MIN_ANSWERS:
            return SkippedCheck(
                f"{count_of(len(answered), 'answer')}: too few", "pass more prompts"
            )
        return findings

    def _multiple_choice(
        self, context: PreflightContext, choices: list[tuple[str, int]], rows: int
    ) -> Iterator[CheckFinding]:
        if not choices:
            return
        guess = sum(1 / options for _, options in choices) / len(choices)
        share = len(choices) / rows
        if share < self.warning_share:
            return  # a few lists in other questions, whose chance level is no baseline
        letters = Counter(filter(None, (_key(answer, options) for answer, options in choices)))
        figures = {"choices": share, "guess": guess}
        skill, skew = 0.0, ""
        if letters:
            letter, most = letters.most_common(1)[0]
            always = most / letters.total()
            figures["always"] = always
            if self._is_skewed(most, letters.total(), guess, len(letters)):
                skill = _skill(always, guess)
                skew = f", always {letter} {always:.0%}"
        summary = (
            f"{len(choices)} of {rows} questions are multiple choice; a blind guess gets "
            f"{guess:.0%}{skew}{_pass_rate(context, figures)}."
        )
        severe = skill >= self.warning_skill and share >= self.warning_share
        details = tuple(f"{letter}: {count}" for letter, count in sorted(letters.items()))
        severity: Severity = "warning" if severe else "info"
        advice = _ADVICE if severe else _BASELINE
        yield CheckFinding(severity, summary, (advice,), details, figures)

    def _is_skewed(self, most: int, rows: int, chance: float, letters: int) -> bool:
        from scipy.stats import binomtest

        p_value = float(binomtest(most, rows, chance, alternative="greater").pvalue)
        return p_value * letters < self.max_p_value and most / rows >= chance + self.min_excess

    def _frequent_answer(
        self, context: PreflightContext, answers: list[str]
    ) -> Iterator[CheckFinding]:
        """A frequent answer, including letters of questions whose options are unknown."""
        if len(answers) < _MIN_ANSWERS:
            return
        counts = Counter(map(_folded, answers))
        common, most = counts.most_common(1)[0]
        always = most / len(answers)
        if always < self.min_guess_rate:
            return
        letters = sum(count for text, count in counts.items() if option_letter(text))
        guess = sum((count / len(answers)) ** 2 for count in counts.values())
        figures = {"always": always, "guess": guess, "letters": letters / len(answers)}
        summary = (
            f"Always answering {common!r} is correct in {always:.0%} of {len(answers)} rows"
            f"{_pass_rate(context, figures)}."
        )
        details = [f"{text!r}: {count}" for text, count in counts.most_common(5)]
        if len(counts) == 1:
            yield CheckFinding(
                "critical",
                f"All {len(answers)} rows have the same answer.",
                ("Check which column holds the answers, or the code that fills it.",),
                (f"{common!r:.80}",),
                figures,
            )
            return
        if letters / len(answers) > 0.5:
            details.append(f"{letters} answers are option letters")
        is_choice = len(counts) <= _MAX_CLASSES
        chance = 1 / len(counts)
        if is_choice and not self._is_skewed(most, len(answers), chance, len(counts)):
            summary = (
                f"A guess among the {len(counts)} different answers is correct in {guess:.0%} of "
                f"{len(answers)} rows{_pass_rate(context, figures)}."
            )
            yield CheckFinding("info", summary, (_BASELINE,), tuple(details), figures)
            return
        paid = _share_of_reward(context, counts, common)
        figures |= {} if paid is None else {"paid": paid}
        earned = always if paid is None else min(always, paid)
        if _skill(earned, chance if is_choice else 0.0) < self.warning_skill:
            yield CheckFinding("info", summary, (_BASELINE,), tuple(details), figures)
            return
        advice = _ADVICE if letters / len(answers) > 0.5 else _BALANCE
        # A column that only the reward function names holds classes, as frequent as they are.
        severity: Severity = "info" if context.scored_rows else "warning"
        yield CheckFinding(severity, summary, (advice,), tuple(details), figures)


def _share_of_reward(
    context: PreflightContext, counts: Mapping[str, int], common: str
) -> float | None:
    """Share of the possible reward that the most frequent answer earns, if it is always given.

    It is less than its share of the rows if the function pays rarer answers more. None if the
    rewards of some answers are not known.
    """
    try:
        scored = context.reference_answers
    except DataError:  # REW103 reports it
        return None
    if scored is None or scored.threshold is None:
        return None
    gains: defaultdict[str, list[float]] = defaultdict(list)
    for answer, right, empty in zip(scored.answers, scored.rewards, scored.empty, strict=True):
        gains[_folded(answer)].append(max(right - empty, 0.0))
    if not counts.keys() <= gains.keys():
        return None
    possible = {answer: count * fmean(gains[answer]) for answer, count in counts.items()}
    total = sum(possible.values())
    return possible[common] / total if total > 0 else None


def _folded(answer: str) -> str:
    return " ".join(answer.split()).casefold()


def _skill(rate: float, chance: float) -> float:
    """Part of a blind guess's errors that a fixed answer avoids: 0 at chance, 1 if always right."""
    return (rate - chance) / (1 - chance) if chance < 1 else 0.0


def _key(answer: str, options: int) -> str:
    """The letter or number of the right option; empty if the answer is the option's text."""
    return option_letter(answer, options) or (answer if answer.isdigit() else "")


def _pass_rate(context: PreflightContext, figures: dict[str, float]) -> str:
    """The model's pass rate, for comparison."""
    rate = context.sampler.pass_rate() if context.sampler else None
    if rate is None:
        return ""
    figures["pass_rate"] = rate
    return f", the model {rate:.0%}"

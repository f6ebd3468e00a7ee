"""DAT123."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import format_answer
from grpodoctor.preflight.answers.kinds.number_puzzles import by_one_operation, posed_puzzles
from grpodoctor.preflight.answers.multiple_choice import (
    lettered_options,
    listed_options,
    option_letter,
)
from grpodoctor.preflight.answers.reference_answers import REQUIRES_ANSWERS
from grpodoctor.preflight.answers.stated_answers import final_answer
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow, spread_rows
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.preflight.texts.telling_words import best_rule
from grpodoctor.support.numbers import count_of

_MAX_ROWS = 2000
_SHOWN = 4
_MIN_TOLD, _MIN_OF_CLASS, _MAX_CLASSES = 60, 8, 10
_MIN_PUZZLES, _MOST_PUZZLES = 20, 0.8
"""Puzzles, and their share, that one operation must solve: it solves few if the operations between
the numbers were drawn at random."""
_VERDICTS = ({"yes", "no"}, {"true", "false"}, {"0", "1"}, {"valid", "invalid"},
             {"correct", "incorrect"}, {"right", "wrong"}, {"pass", "fail"})  # fmt: skip
"""Answers that say nothing about the words of their question."""
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w]|\.\d)")

Guess = Callable[[Sequence[str]], str]
_BY_OPTION: Mapping[str, Guess] = {
    "the longest option": lambda texts: max(texts, key=len),
    "the shortest option": lambda texts: min(texts, key=len),
}
_MARKS: Mapping[str, Callable[[str], bool]] = {
    "with a full stop at its end": lambda text: text.endswith("."),
    "without a full stop at its end": lambda text: not text.endswith("."),
    "with a capital letter at its beginning": lambda text: text[:1].isupper(),
    "without a capital letter at its beginning": lambda text: text[:1].islower(),
    "with a number": lambda text: any(map(str.isdigit, text)),
    "with parentheses": lambda text: "(" in text,
    "with a comma": lambda text: "," in text,
    "with markup": lambda text: bool(re.search(r"[*_`<>]", text)),
    "with quotation marks": lambda text: bool(re.search(r"[\"\u201c\u201d]", text)),
    "with two blanks": lambda text: "  " in text,
}
"""Features by which the right option may differ from all others."""


def _only_one(has: Callable[[str], bool]) -> Guess:
    """The rule that takes the only option with a feature."""

    def guess(texts: Sequence[str]) -> str:
        marked = [text for text in texts if has(text)]
        return marked[0] if len(marked) == 1 else ""

    return guess


_BY_MARK: Mapping[str, Guess] = {
    f"the only option {name}": _only_one(has) for name, has in _MARKS.items()
}
_OTHER_PLACE = "Vary the place of the answer, or compare with a set from another source."
_OTHER_STYLE = "Write all options in one style; generate wrong and right ones in the same way."
_PLACES = ("first", "second", "third", "fourth", "fifth", "sixth")


def _at(place: int) -> Guess:
    """The rule that always takes the option at a place."""
    return lambda texts: texts[place] if place < len(texts) else ""


_BY_PLACE: Mapping[str, Guess] = {
    f"the {name} option": _at(place) for place, name in enumerate(_PLACES)
}
"""Rules for answers that are an option's text; DAT108 counts the letters of the others."""
_BY_NUMBER: Mapping[str, Guess] = {
    "the first number of the prompt": lambda numbers: numbers[0],
    "the last number of the prompt": lambda numbers: numbers[-1],
    "the largest number of the prompt": lambda numbers: max(numbers, key=float),
    "the smallest number of the prompt": lambda numbers: min(numbers, key=float),
}


@dataclass(frozen=True, slots=True)
class _Guessed:
    """A row with what can be guessed, and its answer."""

    row: PromptRow
    candidates: tuple[str, ...]
    """Texts of the options, or numbers of the prompt."""
    answer: str
    """The right one of them, or another text."""
    written: Mapping[str, str]
    """How a response writes a candidate."""


class Shortcuts(Check):
    """A rule of thumb finds most answers without the question being understood.

    What it sees:
        Questions with lettered options: how often the longest or the shortest option is right, or
        the only one with a full stop, a capital letter, a number, markup or another such mark. If
        the answer is the text of an option, also how often the first, the second, and so on is.
        Other questions whose answer is a number: how often the first, the last, the largest or the
        smallest number of the prompt is the answer. The share is compared with that of answers in a
        random order. With a reward function, the shortcut must also earn the reward. For puzzles
        with numbers and a target, how often the sum or the product of all numbers is the target.

        If the answers are letters of options, or yes and no, also how often a single word, a place
        in the prompt, its length, its capitals or the part of an id tells the answer. For other
        closed sets of answers only ids, blanks and line breaks count: their words may be what the
        question is about. Each rule is learned on one half of the rows and tested on the other.

    Why it matters:
        A model finds such a rule sooner than the solution. The reward rises, the responses get
        short, and another data set shows that nothing was learned.

    What to do:
        Write options of equal length, and vary the place of the answer in the text. Compare with a
        held-out set from another source.

    When it is wrong:
        Tasks such as "copy the last number" or "which is the largest?" consist of the rule.

    References:
        Haladyna, Downing and Rodriguez 2002, A Review of Multiple-Choice Item-Writing Guidelines:
        vary the place of the right option (guideline 20), and keep options about equally long (24).
    """

    code: ClassVar[str] = "DAT123"
    name: ClassVar[str] = "answered-by-a-shortcut"
    summary: ClassVar[str] = "A rule of thumb finds most answers."
    min_rows: ClassVar[int] = 20
    warning_skill: ClassVar[float] = 0.5
    """Part of the errors of a guess at random that the rule avoids, from which it is reported."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Try each rule."""
        rows = [row for row in spread_rows(context.rows, _MAX_ROWS) if row.answer]
        if one := [*_one_operation(tuple(spread_rows(context.rows, _MAX_ROWS)))]:
            return one
        if not rows:
            return REQUIRES_ANSWERS
        choices = [each for row in rows if (each := _choice(row))]
        placed = [each for row in rows if (each := _placed(row))]
        chosen = {id(each.row) for each in (*choices, *placed)}
        numbers = [each for row in rows if id(row) not in chosen and (each := _number(row))]
        findings: list[CheckFinding] = []
        for rules, guessed in (
            ({**_BY_OPTION, **_BY_MARK}, choices),
            ({**_BY_OPTION, **_BY_PLACE}, placed),
            (_BY_NUMBER, numbers),
        ):
            if len(guessed) >= max(self.min_rows, len(rows) / 2):
                findings += self._best(context, rules, guessed)
        findings = findings or [*self._telling(rows)]
        if not findings and len(rows) < self.min_rows:
            return SkippedCheck(f"{count_of(len(rows), 'answer')}: too few", "pass more prompts")
        return findings

    def _telling(self, rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
        """One word or one place of the prompts that tells the answer."""
        answers = [final_answer(row.answer or "").strip(" .()").casefold() for row in rows]
        counts = Counter(answers)
        if len(rows) < _MIN_TOLD or not 2 <= len(counts) <= _MAX_CLASSES:
            return
        if min(counts.values()) < _MIN_OF_CLASS:
            return
        is_arbitrary = set(counts) in _VERDICTS or all(
            option_letter(answer) and len(answer) == 1 for answer in counts
        )
        prompts = ["\n".join(row.texts()) for row in rows]
        rule = best_rule(prompts, answers, only_ids=not is_arbitrary)
        chance = max(counts.values()) / len(rows)
        if rule is None or (rule.rate - chance) / (1 - chance) < self.warning_skill:
            return
        yield CheckFinding(
            "warning",
            f"{rule.description[0].upper()}{rule.description[1:]} tells the answer in "
            f"{rule.rate:.0%} of {len(rows)} rows.",
            ("Remove it from the prompts, or vary it independently of the answer.",),
            (rule.example,),
            {"rate": rule.rate, "chance": chance},
        )

    def _best(
        self, context: PreflightContext, rules: Mapping[str, Guess], guessed: Sequence[_Guessed]
    ) -> Iterator[CheckFinding]:
        """The rule that finds most answers, if it is better than chance and the reward pays it."""
        rates = {name: _rate(rule, guessed) for name, rule in rules.items()}
        name, (rate, chance) = max(rates.items(), key=lambda entry: entry[1][0])
        skill = (rate - chance) / max(1 - chance, 1e-9)
        if skill < self.warning_skill:
            return
        paid = _share_paid(context, rules[name], guessed)
        if paid is not None and paid < self.warning_skill:
            return
        hits = [each for each in guessed if rules[name](each.candidates) == each.answer]
        yield CheckFinding(
            "info" if paid is None and rules is _BY_NUMBER else "warning",
            f"Always answering {name} is correct in {rate:.0%} of {len(guessed)} rows.",
            (_OTHER_STYLE if name in _BY_MARK else _OTHER_PLACE,),
            tuple(f"{each.row.location}: {each.answer!r:.60}" for each in hits[:_SHOWN]),
            {"rate": rate, "chance": chance},
        )


def _one_operation(rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    """Number puzzles that one operation solves."""
    solved = Counter(by_one_operation(each) for each in posed_puzzles(rows) if each)
    for name, count in solved.items():
        if name and count >= _MIN_PUZZLES and count > _MOST_PUZZLES * len(rows):
            yield CheckFinding(
                "warning",
                f"{name.capitalize()} all numbers solves {count} of {len(rows)} puzzles.",
                ("Make puzzles that need other operations, too: draw the operations at random.",),
                figures={"rate": count / len(rows)},
            )


def _choice(row: PromptRow) -> _Guessed | None:
    options = lettered_options(row)
    letter = option_letter(final_answer(row.answer or "").strip(".: "), len(options))
    answer = options.get(letter, "")
    if not answer or len(set(map(len, options.values()))) < 2:
        return None
    letters = {text: letter for letter, text in options.items()}
    return _Guessed(row, tuple(options.values()), answer, letters)


def _placed(row: PromptRow) -> _Guessed | None:
    """A question whose answer is the text of one of its listed options."""
    texts = listed_options(row)
    answer = _plain(final_answer(row.answer or ""))
    options = {_plain(text): text for text in texts}
    if not answer or len(options) < len(texts) or answer not in options:
        return None
    return _Guessed(row, tuple(options), answer, options)


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold().strip(".")


def _number(row: PromptRow) -> _Guessed | None:
    answer = final_answer(row.answer or "").strip()
    numbers = tuple(_NUMBER.findall(row.prompt))
    if len(set(numbers)) < 2 or not _NUMBER.fullmatch(answer):
        return None
    return _Guessed(row, numbers, answer, {number: number for number in numbers})


def _rate(rule: Guess, guessed: Sequence[_Guessed]) -> tuple[float, float]:
    """Share of rows that a rule gets right, and what it would get right by chance.

    By chance the answer is any candidate that could be right; if it need not be a candidate, the
    answer of another row.
    """
    hits = sum(rule(each.candidates) == each.answer for each in guessed)
    if all(each.answer in each.candidates for each in guessed):
        chance = sum(1 / len(set(each.candidates)) for each in guessed)
    else:
        others = [each.answer for each in guessed]
        random.Random(0).shuffle(others)  # noqa: S311 - a comparison, no secret
        chance = sum(
            rule(each.candidates) == other for each, other in zip(guessed, others, strict=True)
        )
    return hits / len(guessed), chance / len(guessed)


def _share_paid(
    context: PreflightContext, rule: Guess, guessed: Sequence[_Guessed]
) -> float | None:
    """Share of the rule's answers that earn the full reward; None without a reward function.

    A function that rewards none of the data's answers wants something else, such as an equation.
    """
    if context.reward is None:
        return None
    answers = context.reference_answers
    if answers is None or answers.threshold is None:
        return 0.0
    by_row = {id(each.row): each for each in guessed}
    tried = [(row, by_row[id(row)]) for row in answers.rows if id(row) in by_row]
    if not tried:
        return 0.0
    texts = [
        format_answer(answers.answer_format, each.written[rule(each.candidates)])
        for _, each in tried
    ]
    try:
        rewards = context.reward([row for row, _ in tried], texts).total
    except DataError:  # REW103 reports it
        return 0.0
    return sum(value > answers.threshold for value in rewards) / len(rewards)

"""What the reward function pays for the data's own answers; asked once for all checks."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from grpodoctor.errors import DataError
from grpodoctor.preflight.base import Skipped
from grpodoctor.preflight.constructed_answers import final_answer, formats_of, written, wrong_answer
from grpodoctor.preflight.context import Judge, Plan, Row

NEEDS_REWARD = Skipped("no reward function was given", "give --reward FILE.py:function")
NEEDS_ANSWERS = Skipped(
    "the prompts have no answers", "have a column answer, solution or ground_truth in --prompts"
)
NOTHING_PAID = Skipped(
    "no right answer is worth more than nothing, see REW101", "say the form with --gold-format"
)
_MOST_ROWS = 64
"""That are judged: enough to find a parser that misses a tenth of the answers."""


@dataclass(frozen=True, slots=True)
class Gold:
    """Rows with an answer, and the form in which most of their answers are paid."""

    rows: tuple[Row, ...]
    answers: tuple[str, ...]
    """As they are put into the form."""
    name: str
    """Of the form."""
    form: str
    rewards: tuple[float, ...]
    """Of the right answers in that form."""
    wrong: tuple[float, ...]
    """Of wrong answers in that form; minus infinity where the function fails on them."""
    nothing: tuple[float, ...]
    """Of an empty completion, likewise."""

    @property
    def paid(self) -> tuple[bool, ...]:
        """Which right answers are worth more than nothing."""
        pairs = zip(self.rewards, self.nothing, strict=True)
        return tuple(right > empty for right, empty in pairs)

    @property
    def missed(self) -> tuple[bool, ...]:
        """Which right answers the function does not know for right.

        They are worth no more than nothing; or, where it tells most right answers from wrong ones,
        no more than a wrong one: the form alone is paid then.
        """
        known = [right > wrong for right, wrong in zip(self.rewards, self.wrong, strict=True)]
        tells = sum(known) > len(known) / 2
        return tuple(
            not (paid and (knows or not tells))
            for paid, knows in zip(self.paid, known, strict=True)
        )

    @property
    def threshold(self) -> float | None:
        """Reward from which on a response is taken for right; None if no right answer is paid.

        Half-way between what right and wrong answers are worth, so that neither a bonus for the
        form nor one for the length decides.
        """
        right = [each for each, miss in zip(self.rewards, self.missed, strict=True) if not miss]
        if not right:
            return None
        others = [max(wrong, empty) for wrong, empty in zip(self.wrong, self.nothing, strict=True)]
        worth, base = statistics.median(right), statistics.median(others)
        return (worth + base) / 2 if -math.inf < base < worth else worth


def try_gold(judge: Judge, rows: Sequence[Row], plan: Plan) -> Gold | None:
    """Reward the data's answers in every form; None without answers.

    An answer that is a whole solution is tried as it is, and by what it comes to.

    Raises:
        DataError: if the reward function fails.
    """
    known = [row for row in rows if row.answer is not None and row.answer.strip()]
    if not known:
        return None
    if len(known) > _MOST_ROWS:
        known = random.Random(plan.seed).sample(known, _MOST_ROWS)  # noqa: S311 - a choice of rows
    whole = [row.answer or "" for row in known]
    final = [final_answer(each) for each in whole]
    tried = [(name, form, final) for name, form in formats_of(plan).items()]
    if final != [each.strip() for each in whole]:
        tried.append(("the data's own solutions", "{answer}", whole))
    paid = [
        (name, form, answers, _rewards(judge, known, _in_form(form, answers)))
        for name, form, answers in tried
    ]
    nothing = _or_nothing(judge, known, [""] * len(known))
    name, form, answers, rewards = max(
        paid, key=lambda each: (_count(each[3], nothing), statistics.fmean(each[3]))
    )
    wrong = _in_form(form, [wrong_answer(each, answers) for each in answers])
    return Gold(
        rows=tuple(known),
        answers=tuple(answers),
        name=name,
        form=form,
        rewards=rewards,
        wrong=_or_nothing(judge, known, wrong),
        nothing=nothing,
    )


def _in_form(form: str, answers: Sequence[str]) -> list[str]:
    return [written(form, each) for each in answers]


def _count(rewards: Sequence[float], nothing: Sequence[float]) -> int:
    return sum(right > empty for right, empty in zip(rewards, nothing, strict=True))


def _or_nothing(judge: Judge, rows: Sequence[Row], texts: Sequence[str]) -> tuple[float, ...]:
    """What completions are worth; a function that fails on them pays nothing for them."""
    try:
        return _rewards(judge, rows, texts)
    except DataError:
        return (-math.inf,) * len(rows)


def _rewards(judge: Judge, rows: Sequence[Row], texts: Sequence[str]) -> tuple[float, ...]:
    return tuple(verdict.reward for verdict in judge(rows, texts))

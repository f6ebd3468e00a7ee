"""Kinds of rows that the reward function may treat in another way than most rows.

A sample of all rows hardly contains a rare source or a rare kind of answer. So a few rows of each
kind are scored on purpose.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import format_answer, wrong_answer
from grpodoctor.preflight.answers.reference_answers import ReferenceAnswers
from grpodoctor.preflight.answers.stated_answers import final_answer
from grpodoctor.preflight.inputs.columns import flat_columns
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.texts.normal_form import number_of
from grpodoctor.trainer.rewards.user_reward import UserReward

_MIN_ROWS = 8
_MIN_SHARE, _MAX_SHARE = 0.01, 0.6
_TRIED = 6
"""Rows of each kind that are scored."""
_MOST = 0.8
_MAX_OTHERS = 0.2
"""Share of the other rows with the same fault, up to which the kind explains it."""
_SCALE = 5.0
"""Ratio of the rewards of two kinds of rows from which one of them has another scale: bonuses and
weights of sources are smaller."""
_MAX_SLICES = 24
_MAX_VALUES = 12
_MAX_VALUE = 40


@dataclass(frozen=True, slots=True)
class SliceFault:
    """A kind of rows in which the reward is wrong."""

    name: str
    tried: int
    failed: int
    rows: int
    """Rows of this kind."""
    error: str = ""
    """What the function raises on them; empty if it does not."""
    own: float = 0.0
    """Median reward of their correct answers."""
    others: float = 0.0
    """That of the other rows."""


@dataclass(frozen=True, slots=True)
class SliceFaults:
    """Kinds of rows whose correct answers earn nothing, and whose wrong ones earn all."""

    unrewarded: SliceFault | None = None
    paid: SliceFault | None = None
    raising: SliceFault | None = None
    scaled: SliceFault | None = None
    """A kind whose correct answers earn many times as much as those of other rows, or a part."""


def slice_faults(
    reward: UserReward, answers: ReferenceAnswers, rows: Sequence[PromptRow]
) -> SliceFaults:
    """Score correct and wrong answers in a few rows of each kind."""
    is_graded = answers.is_graded
    own = _whole if is_graded else _final
    is_own = all(text == own(row) for row, text in zip(answers.rows, answers.answers, strict=True))
    if answers.threshold is None or not is_own:
        return SliceFaults()
    answered = [row for row in rows if row.answer and row.answer.strip()]
    slices = _slices(answered)
    rng = random.Random(0)  # noqa: S311 - a choice of rows
    faults: dict[str, tuple[list[bool], list[bool]]] = {}
    earned: dict[str, list[float]] = {}
    for name, chosen in slices.items():
        tried = [answered[at] for at in rng.sample(chosen, min(_TRIED, len(chosen)))]
        texts = [own(row) for row in tried]
        others = [wrong_answer(text, answers.answers) for text in texts]
        try:
            right, wrong = (_rewards(reward, answers, tried, each) for each in (texts, others))
        except DataError as error:
            fault = SliceFault(name, len(tried), len(tried), len(chosen), error.what)
            return SliceFaults(raising=fault)
        earned[name] = right
        # A measure of similarity pays parts: only a reference that earns nothing is a fault.
        least = median(answers.empty) if is_graded else 0.0
        faults[name] = (
            [value <= least if is_graded else value < answers.threshold for value in right],
            [
                other >= max(answers.threshold, own_reward) and not is_graded
                for other, own_reward in zip(wrong, right, strict=True)
            ],
        )
    members = {name: {id(answered[at]) for at in chosen} for name, chosen in slices.items()}
    usual = (
        list(answers.missed),
        [
            other >= max(answers.threshold, own_reward) and not is_graded
            for other, own_reward in zip(answers.wrong, answers.rewards, strict=True)
        ],
    )
    unrewarded, paid = (
        _worst({name: each[kind] for name, each in faults.items()}, members, answers, usual[kind])
        for kind in (0, 1)
    )
    return SliceFaults(unrewarded, paid, scaled=_scaled(earned, members, answers))


def _scaled(
    earned: Mapping[str, Sequence[float]],
    members: Mapping[str, set[int]],
    answers: ReferenceAnswers,
) -> SliceFault | None:
    """The largest kind by a column whose correct answers are paid on another scale."""
    found = []
    for name, rewards in earned.items():
        others = [
            value
            for row, value, is_missed in zip(
                answers.rows, answers.rewards, answers.missed, strict=True
            )
            if id(row) not in members[name] and not is_missed
        ]
        if " = " not in name or len(others) < _MIN_ROWS:
            continue
        own, usual = median(rewards), median(others)
        is_uniform = min(rewards) >= own / 2 and max(rewards) <= 2 * own
        if own > 0 and usual > 0 and is_uniform and max(own / usual, usual / own) >= _SCALE:
            rows = len(members[name])
            found.append(SliceFault(name, len(rewards), 0, rows, own=own, others=usual))
    return max(found, key=lambda fault: fault.rows, default=None)


def _final(row: PromptRow) -> str:
    return final_answer(row.answer or "")


def _whole(row: PromptRow) -> str:
    return (row.answer or "").strip()


def _rewards(
    reward: UserReward, answers: ReferenceAnswers, rows: Sequence[PromptRow], texts: Sequence[str]
) -> list[float]:
    return list(reward(rows, [format_answer(answers.answer_format, each) for each in texts]).total)


def _worst(
    faults: Mapping[str, Sequence[bool]],
    members: Mapping[str, set[int]],
    answers: ReferenceAnswers,
    usual: Sequence[bool],
) -> SliceFault | None:
    """The largest kind nearly all of whose rows have a fault that other rows do not have.

    Args:
        faults: whether each row that was tried has the fault, by kind.
        members: the rows of each kind.
        answers: the sample of all rows.
        usual: whether each row of the sample has the fault.
    """
    found = []
    for name, each in faults.items():
        others = [
            fault for row, fault in zip(answers.rows, usual, strict=True)
            if id(row) not in members[name]
        ]  # fmt: skip
        is_special = len(others) >= _MIN_ROWS and sum(others) <= _MAX_OTHERS * len(others)
        if sum(each) >= _MOST * len(each) and is_special:
            found.append(SliceFault(name, len(each), sum(each), len(members[name])))
    return max(found, key=lambda fault: fault.rows, default=None)


def _slices(rows: Sequence[PromptRow]) -> dict[str, list[int]]:
    """Rows by kind, for kinds that are neither rare accidents nor most of the data."""
    found: dict[str, list[int]] = defaultdict(list)
    categories = _categories(rows)
    for at, row in enumerate(rows):
        flat = flat_columns(row.columns)
        for name in dict.fromkeys([*_column_kinds(flat, categories), *_kinds(row)]):
            found[name].append(at)
    low, high = max(_MIN_ROWS, _MIN_SHARE * len(rows)), _MAX_SHARE * len(rows)
    kept = {name: each for name, each in found.items() if low <= len(each) <= high}
    return dict(list(kept.items())[:_MAX_SLICES])


def _categories(rows: Sequence[PromptRow]) -> set[str]:
    """Columns with a few different short texts."""
    values: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        for name, value in flat_columns(row.columns).items():
            if isinstance(value, str | bool | int) and len(str(value)) <= _MAX_VALUE:
                values[name][str(value)] += 1
    answers = {name for name in values if any(flat_columns(row.columns).get(name) == row.answer
                                              for row in rows[:_MIN_ROWS])}  # fmt: skip
    return {name for name, each in values.items() if 1 < len(each) <= _MAX_VALUES} - answers


def _column_kinds(flat: Mapping[str, Any], categories: set[str]) -> Iterator[str]:
    for name, value in flat.items():
        if value in (None, "", [], {}):
            yield f"{name} empty"
        elif name in categories:
            yield f"{name} = {value!r:.40}"


def _kinds(row: PromptRow) -> Iterator[str]:
    """Kinds of answers and of prompts."""
    answer = final_answer(row.answer or "").strip()
    yield from _kinds_of_answer(answer)
    for name, pattern in _SIGNS.items():
        if pattern.search(answer):
            yield f"{name} in the answer"
    if row.messages and row.messages[0]["role"] == "system":
        yield "a system message"
    if len(row.messages) > 2:
        yield "several turns"


def _kinds_of_answer(answer: str) -> Iterator[str]:
    number = number_of(answer)
    if number is not None:
        yield "a negative number as answer" if number < 0 else "a number as answer"
        if "." in answer:
            yield "a decimal number as answer"
        if "," in answer:
            yield "a comma in the number of the answer"
        if abs(number) >= 1000:
            yield "a number of four digits or more as answer"
    elif len(answer) == 1:
        yield "a letter as answer"
    elif _FRACTION.fullmatch(answer.strip()):
        yield "a fraction as answer"
    elif _SYNTAX.search(answer):
        yield "a formula as answer"
    else:
        yield "one word as answer" if len(answer.split()) == 1 else "several words as answer"


_SYNTAX = re.compile(r"[\\{}^=]")
_FRACTION = re.compile(r"-?\d+\s*/\s*\d+")
_SIGNS = {
    "a line break": re.compile(r"\n"),
    "LaTeX": re.compile(r"\\[a-zA-Z]"),
    "a fraction": re.compile(r"\d/\d"),
    "a percent sign": re.compile("%"),
    "quotation marks": re.compile(r"[\"'\u2018\u2019\u201c\u201d]"),
    "letters outside ASCII": re.compile(r"[^\W\d_a-zA-Z]"),
    "a hyphen": re.compile(r"\w-\w"),
    "brackets": re.compile(r"[()\[\]{}]"),
    "capital letters": re.compile(r"[A-Z]"),
}

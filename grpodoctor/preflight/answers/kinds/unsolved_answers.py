"""Answers that are not among the numbers of their row's own worked solution."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median

from grpodoctor.preflight.answers.multiple_choice import listed_options, options_of
from grpodoctor.preflight.answers.stated_answers import final_answer
from grpodoctor.preflight.inputs.columns import flat_columns
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.texts.normal_form import number_of, numbers_of

_SOLUTION = re.compile(r"solution|rationale|explanation|reasoning|\bway\b|steps|working|cot\b")
"""Names of columns that hold a worked solution."""
_CODE = re.compile(r"^\s*(?:def |import |print\(|return |for .*:$|```)", re.MULTILINE)
_MIN_ROWS = 30
_MIN_NUMBERS = 3
"""Numbers of a solution that works something out."""
_MIN_DISTINCT = 3
"""Different answers. Two are a verdict, such as 0 and 1, which no solution computes."""
_LEAST_STATED = 0.5
"""Share of the solutions that state their answer; sound ones end with it."""


def unsolved(rows: Sequence[PromptRow]) -> tuple[str, list[PromptRow], int]:
    """Rows whose numeric answer does not occur in their worked solution, if most do not.

    Returns:
        The column of solutions, the rows, and how many rows were compared; an empty name if the
        solutions state their answers.
    """
    for name in _columns(rows):
        pairs = [
            (row, number, numbers)
            for row in rows
            if not options_of(row)
            and not listed_options(row)  # the answer may be an option's number
            and (number := number_of(final_answer(row.answer or ""))) is not None
            and (numbers := _numbers(flat_columns(row.columns).get(name)))
        ]
        if len(pairs) < max(_MIN_ROWS, len(rows) / 2):
            continue
        if median(len(numbers) for _, _, numbers in pairs) < _MIN_NUMBERS:
            continue
        if len({number for _, number, _ in pairs}) < _MIN_DISTINCT:
            continue
        missing = [row for row, number, numbers in pairs if not _states(row, number, numbers)]
        if len(missing) > _LEAST_STATED * len(pairs):
            return name, missing, len(pairs)
    return "", [], 0


def _states(row: PromptRow, number: float, numbers: Sequence[float]) -> bool:
    """Whether a number is among others, also as a fraction of two of them, or rounded."""
    answer = final_answer(row.answer or "")
    if "/" in answer or "frac" in answer:
        return set(map(abs, numbers_of(answer))) <= set(map(abs, numbers))
    digits = len(answer.partition(".")[2])
    values = (value * scale for value in numbers for scale in (1, 100, 0.01))
    return any(abs(abs(value) - abs(number)) <= 0.5000001 * 10.0**-digits for value in values)


def _columns(rows: Sequence[PromptRow]) -> list[str]:
    names = dict.fromkeys(name for row in rows[:_MIN_ROWS] for name in flat_columns(row.columns))
    return [name for name in names if _SOLUTION.search(name.rpartition(".")[2].casefold())]


def _numbers(value: object) -> list[float]:
    """The numbers of a solution in prose; a program computes its answer and does not state it."""
    return numbers_of(value) if isinstance(value, str) and not _CODE.search(value) else []

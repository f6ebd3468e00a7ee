"""Right answers to number puzzles: reach a target with some numbers, each used once.

Their data has no answer column, since many expressions are right.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpodoctor.preflight.answers.kinds.reached_targets import ReachedTargets, joined
from grpodoctor.preflight.inputs.columns import flat_columns
from grpodoctor.preflight.inputs.prompt_rows import PromptRow

TWICE = "a number used several times"
LEFT_OUT = "a number left out"
NOT_GIVEN = "numbers that are not given"
_LEAST_NUMBERS, _MOST_NUMBERS = 2, 6
_MOST_STEPS = 20_000
"""Expressions that are tried for a row: all of four numbers, and a part of those of more."""
_MOST = 0.9
"""Share of the rows that must have numbers and a target."""


def puzzle_rows(rows: Sequence[PromptRow]) -> tuple[PromptRow, ...]:
    """The rows with an expression that reaches their target as the answer.

    Rows whose expression is not found have no answer. Empty if the rows are no such puzzles.
    """
    names = _columns(rows)
    if names is None:
        return ()
    numbers, target = names
    solved = []
    for row in rows:
        columns = flat_columns(row.columns)
        given, wanted = _numbers(columns.get(numbers)), _integer(columns.get(target))
        found = solution(given, wanted) if given and wanted is not None else ""
        solved.append(replace(row, answer=found or None))
    return tuple(solved) if any(row.answer for row in solved) else ()


@dataclass(frozen=True, slots=True)
class Puzzle:
    """The numbers and the target of a row."""

    numbers: tuple[int, ...]
    target: int


def posed_puzzles(rows: Sequence[PromptRow]) -> list[Puzzle | None]:
    """The puzzle of each row, None for rows without one; empty if the rows are no puzzles."""
    names = _columns(rows)
    if names is None:
        return []
    posed: list[Puzzle | None] = []
    for row in rows:
        columns = flat_columns(row.columns)
        given, wanted = _numbers(columns.get(names[0])), _integer(columns.get(names[1]))
        posed.append(Puzzle(tuple(given), wanted) if given and wanted is not None else None)
    return posed


def unfair_solutions(puzzle: Puzzle) -> Iterator[tuple[str, str]]:
    """Kinds of expressions that reach the target and break the rules, with the expression."""
    numbers, target = puzzle.numbers, puzzle.target
    fair = solution(numbers, target)
    if fair:
        yield TWICE, f"{fair} + {numbers[0]} - {numbers[0]}"
    targets = ReachedTargets(numbers)
    sizes = range(len(numbers) - 1, 1, -1)
    if found := next(filter(None, (targets.with_some(size, target) for size in sizes)), ""):
        yield LEFT_OUT, found
    if sorted(numbers) != sorted((target - 1, 1)):
        yield NOT_GIVEN, f"{target - 1} + 1"


def by_one_operation(puzzle: Puzzle) -> str:
    """The operation that reaches the target alone: adding or multiplying; empty if none does."""
    if sum(puzzle.numbers) == puzzle.target:
        return "adding"
    return "multiplying" if math.prod(puzzle.numbers) == puzzle.target else ""


def solution(numbers: Sequence[int], target: int) -> str:
    """An expression with + - * / that uses each number once and has the target as its value.

    Every division in it is exact. Empty if none is found.
    """
    left = [_MOST_STEPS]
    found = _solve([(number, str(number)) for number in numbers], target, left)
    return found[1:-1] if found.startswith("(") else found


def _solve(parts: list[tuple[int, str]], target: int, left: list[int]) -> str:
    if len(parts) == 1:
        return parts[0][1] if parts[0][0] == target else ""
    for first in range(len(parts)):
        for second in range(first + 1, len(parts)):
            others = [part for at, part in enumerate(parts) if at not in (first, second)]
            for made in joined(*parts[first], *parts[second]):
                left[0] -= 1
                if left[0] < 0:
                    return ""
                if found := _solve([*others, made], target, left):
                    return found
    return ""


def _columns(rows: Sequence[PromptRow]) -> tuple[str, str] | None:
    """The names of the columns with the numbers and with the target, which stand together."""
    first = flat_columns(rows[0].columns) if rows else {}
    for name, value in first.items():
        if not _numbers(value):
            continue
        folder = name.rpartition(".")[0]
        for other, target in first.items():
            if other.rpartition(".")[0] != folder or _integer(target) is None:
                continue
            fitting = sum(_is_puzzle(row, name, other) for row in rows)
            if fitting >= _MOST * len(rows):
                return name, other
    return None


def _is_puzzle(row: PromptRow, numbers: str, target: str) -> bool:
    """Whether a row has numbers and a target, all of which its prompt states."""
    columns = flat_columns(row.columns)
    given, wanted = _numbers(columns.get(numbers)), _integer(columns.get(target))
    text = "\n".join(row.texts())
    return bool(given) and wanted is not None and all(str(n) in text for n in (*given, wanted))


def _numbers(value: Any) -> list[int]:
    if isinstance(value, str) and value.strip().startswith("["):
        try:
            value = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return []
    if not isinstance(value, list | tuple) or not _LEAST_NUMBERS <= len(value) <= _MOST_NUMBERS:
        return []
    numbers = [_integer(each) for each in value]
    return [each for each in numbers if each is not None] if None not in numbers else []


def _integer(value: Any) -> int | None:
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal() and len(value) < 12:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None

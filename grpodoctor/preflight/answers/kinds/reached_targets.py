"""Expressions that reach a target with a part of some numbers, each used at most once.

A part is split in two, and the value that the other half must have is looked up. The last step of
an expression is thus never enumerated, which is most of the work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

_LISTED = 3
"""Numbers of a part whose values are all listed: three have about a hundred."""
_MOST_STEPS = 20_000
"""Values that are tried for a size of the parts; a search that needs more finds nothing."""


class ReachedTargets:
    """Searches expressions over some numbers."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = tuple(numbers)
        self._values: dict[tuple[int, ...], dict[int, str]] = {}
        self._left = 0

    def with_some(self, size: int, target: int) -> str:
        """An expression with `size` of the numbers, every division of which is exact.

        Empty if none is found.
        """
        self._left = _MOST_STEPS
        for part in combinations(range(len(self._numbers)), size):
            if self._left < 0:
                break  # a dozen numbers have thousands of parts
            if found := self._reach(part, target):
                return found[1:-1] if found.startswith("(") else found
        return ""

    def _reach(self, part: tuple[int, ...], target: int) -> str:
        if len(part) <= _LISTED:
            self._left -= 1
            return self._listed(part).get(target, "")
        for one, other in _splits(part):
            for value, text in self._listed(one).items():
                for wanted, form in _partners(value, target):
                    if self._left < 0:
                        return ""
                    if found := self._reach(other, wanted):
                        return form.format(text, found)
        return ""

    def _listed(self, part: tuple[int, ...]) -> dict[int, str]:
        """The values of all expressions of a part with at most three numbers."""
        if part not in self._values:
            if len(part) == 1:
                number = self._numbers[part[0]]
                self._values[part] = {number: str(number)}
            else:
                values: dict[int, str] = {}
                for one, other in _splits(part):
                    for a, x in self._listed(one).items():
                        for b, y in self._listed(other).items():
                            for value, text in joined(a, x, b, y):
                                values.setdefault(value, text)
                self._values[part] = values
        return self._values[part]


def _splits(part: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """A smaller and a larger half of a part, in every way; the smaller one has at most three."""
    for size in range(1, len(part) // 2 + 1):
        for one in combinations(part, size):
            other = tuple(at for at in part if at not in one)
            if len(other) > size or one < other:
                yield one, other


def _partners(value: int, target: int) -> Iterator[tuple[int, str]]:
    """The values that reach a target together with one, and the expression of both."""
    yield target - value, "({0} + {1})"
    yield value - target, "({0} - {1})"
    yield target + value, "({1} - {0})"
    if value and target % value == 0:
        yield target // value, "({0} * {1})"
    if value:
        yield target * value, "({1} / {0})"
    if value and target and value % target == 0:
        yield value // target, "({0} / {1})"


def joined(a: int, x: str, b: int, y: str) -> Iterator[tuple[int, str]]:
    """The whole numbers that two make, and their expressions from those of the two."""
    yield a + b, f"({x} + {y})"
    yield a * b, f"({x} * {y})"
    yield a - b, f"({x} - {y})"
    yield b - a, f"({y} - {x})"
    if b and a % b == 0:
        yield a // b, f"({x} / {y})"
    if a and b % a == 0:
        yield b // a, f"({y} / {x})"

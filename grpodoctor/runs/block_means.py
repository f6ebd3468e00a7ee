"""One metric over its whole run, in blocks: memory that does not grow with the run."""

from __future__ import annotations

import math
from collections.abc import Sequence

MOST_BLOCKS = 64
"""Blocks kept. When they are full, neighbors merge in pairs, so that 32 to 64 blocks of equal size
cover the run."""


class BlockMeans:
    """Means of successive blocks of readings, from the first reading of the run to the latest."""

    __slots__ = ("_last_steps", "_pending", "_size", "means")

    def __init__(self) -> None:
        self.means: list[float] = []
        """The mean of each complete block."""
        self._last_steps: list[int] = []
        self._size = 1
        """Additions that make a block."""
        self._pending: list[float] = []
        """Additions of the block that is not complete yet."""

    @property
    def additions(self) -> int:
        """Calls of `add` that the blocks cover."""
        return len(self.means) * self._size + len(self._pending)

    def add(self, values: Sequence[float], step: int) -> None:
        """Add the readings up to a step; those that are not finite are ignored.

        Every call adds the same number of readings.
        """
        self._pending.append(_mean(values))
        if len(self._pending) < self._size:
            return
        self.means.append(_mean(self._pending))
        self._last_steps.append(step)
        self._pending.clear()
        if len(self.means) == MOST_BLOCKS:
            self._merge()

    def _merge(self) -> None:
        pairs = zip(self.means[::2], self.means[1::2], strict=True)
        self.means = [_mean(pair) for pair in pairs]
        self._last_steps = self._last_steps[1::2]
        self._size *= 2

    def rewind(self, step: int) -> None:
        """Remove the blocks that reach `step`, since the run went back."""
        self._pending.clear()
        while self._last_steps and self._last_steps[-1] >= step:
            self._last_steps.pop()
            self.means.pop()


def _mean(values: Sequence[float]) -> float:
    total = sum(values)
    if math.isfinite(total):
        return total / len(values)
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan

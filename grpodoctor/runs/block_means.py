"""One metric over its whole run, in blocks: memory that does not grow with the run."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

MOST_BLOCKS = 256
"""Blocks kept. When they are full, neighbors merge in pairs, so that 128 to 256 blocks of equal
size cover the run. The trend test loses power where few blocks remain: with twelve blocks it finds
.56 of the trends, with 128 readings .9 (`tests/benchmarks/bench_trend.py`)."""


class BlockMeans:
    """Means of successive blocks of readings, from the first reading of the run to the latest."""

    __slots__ = ("_finite", "_last_steps", "_total", "changes", "means", "pending", "size")

    def __init__(self) -> None:
        self.means = array("d")
        """The mean of each complete block."""
        self.size = 1
        """Readings per block."""
        self.changes = 0
        """How often blocks were merged or removed; between two changes, blocks are only added."""
        self._last_steps = array("q")
        self._total = 0.0
        self._finite = 0
        self.pending = 0
        """Readings of the block that is not complete yet, and their finite ones and sum above."""

    @property
    def readings(self) -> int:
        """Readings that the blocks cover."""
        return len(self.means) * self.size + self.pending

    def take(self, values: Sequence[float], total: float) -> bool:
        """Add readings with a finite sum within the current block, the usual case of a long run.

        Returns:
            Whether they were added; otherwise `add` must do it.
        """
        count = len(values)
        if self.pending + count >= self.size or not math.isfinite(total):
            return False
        self._total += total
        self._finite += count
        self.pending += count
        return True

    def add(self, steps: Sequence[int], values: Sequence[float], count: int) -> None:
        """Add the last `count` readings of two sequences; those that are not finite are ignored."""
        if self.pending + count < self.size:  # the usual case of a long run
            self._include(values[-count:])
            self.pending += count
            return
        if self.size == 1 and len(self.means) + count < MOST_BLOCKS:
            self.means.extend(values[-count:])
            self._last_steps.extend(steps[-count:])
            return
        begin, last = len(values) - count, len(values)
        while begin < last:
            end = min(last, begin + self.size - self.pending)
            self._include(values[begin:end])
            self.pending += end - begin
            if self.pending == self.size:
                self._close(steps[end - 1])
            begin = end

    def _include(self, values: Sequence[float]) -> None:
        total = sum(values)
        if not math.isfinite(total):
            values = [value for value in values if math.isfinite(value)]
            total = sum(values)
        self._total += total
        self._finite += len(values)

    def _close(self, step: int) -> None:
        self.means.append(self._total / self._finite if self._finite else math.nan)
        self._last_steps.append(step)
        self._clear_pending()
        if len(self.means) == MOST_BLOCKS:
            self._merge()

    def _clear_pending(self) -> None:
        self._total, self._finite, self.pending = 0.0, 0, 0

    def _merge(self) -> None:
        pairs = zip(self.means[::2], self.means[1::2], strict=True)
        self.means = array("d", [_mean(*pair) for pair in pairs])
        self._last_steps = self._last_steps[1::2]
        self.size *= 2
        self.changes += 1

    def rewind(self, step: int) -> None:
        """Remove the blocks that reach `step`, since the run went back."""
        self._clear_pending()
        self.changes += 1
        while self._last_steps and self._last_steps[-1] >= step:
            self._last_steps.pop()
            self.means.pop()


def _mean(first: float, second: float) -> float:
    """The mean of two block means; that of one block if the other has no finite reading."""
    if math.isfinite(first) and math.isfinite(second):
        return first / 2 + second / 2
    return first if math.isfinite(first) else second

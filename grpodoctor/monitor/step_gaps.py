"""Steps that a run has no line for, also where a resumed run repeats others."""

from __future__ import annotations

_MOST_RANGES = 1000
"""Ranges that are kept, so that a log of every tenth step takes no memory."""


class StepGaps:
    """Counts the steps between the first and the last that were not read."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        """First and last step of each gap, in order."""
        self._further = 0
        """Steps of gaps that are not kept."""
        self._highest: int | None = None

    def add(self, step: int) -> None:
        """Note that a step was read."""
        if self._highest is None or step == self._highest + 1:
            self._highest = step
        elif step > self._highest:
            self._open_gap(self._highest + 1, step - 1)
            self._highest = step
        else:
            self._fill(step)

    def _open_gap(self, first: int, last: int) -> None:
        if len(self._ranges) < _MOST_RANGES:
            self._ranges.append((first, last))
        else:
            self._further += last - first + 1

    def _fill(self, step: int) -> None:
        for place, (first, last) in enumerate(self._ranges):
            if first <= step <= last:
                parts = [(first, step - 1), (step + 1, last)]
                self._ranges[place : place + 1] = [part for part in parts if part[0] <= part[1]]
                return

    @property
    def count(self) -> int:
        """Number of steps that are missing."""
        return sum(last - first + 1 for first, last in self._ranges) + self._further

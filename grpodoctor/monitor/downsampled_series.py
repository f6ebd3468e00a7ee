"""The whole course of a few metrics, in constant memory, for pictures."""

from __future__ import annotations

from collections.abc import Iterable

from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import scalar

CAPACITY = 1024
"""Buckets a track keeps: finer than a picture's pixels."""

_Point = tuple[int, float]


class Track:
    """One metric over a run of any length.

    Readings fall into buckets of equal width; a bucket keeps its lowest and its highest reading, so
    a spike stays in the picture. When the buckets run out, neighbours are joined.
    """

    __slots__ = ("_buckets", "_filled", "_width")

    def __init__(self) -> None:
        self._buckets: list[tuple[_Point, _Point]] = []
        self._width = 1
        self._filled = 0

    def append(self, step: int, value: float) -> None:
        """Take a reading."""
        point = (step, value)
        if self._buckets and self._filled < self._width:
            self._buckets[-1] = _join(self._buckets[-1], (point, point))
            self._filled += 1
            return
        if len(self._buckets) == CAPACITY:
            pairs = zip(self._buckets[::2], self._buckets[1::2], strict=True)
            self._buckets = [_join(left, right) for left, right in pairs]
            self._width *= 2
        self._buckets.append((point, point))
        self._filled = 1

    def rewind(self, step: int) -> None:
        """Forget the readings at `step` and after: the run went back."""
        kept = [bucket for bucket in self._buckets if max(low[0] for low in bucket) < step]
        if len(kept) < len(self._buckets):
            self._buckets, self._filled = kept, self._width

    def points(self) -> list[_Point]:
        """Step and value, in the order of the steps."""
        return sorted({point for bucket in self._buckets for point in bucket})


def _join(left: tuple[_Point, _Point], right: tuple[_Point, _Point]) -> tuple[_Point, _Point]:
    low = min(left[0], right[0], key=lambda point: point[1])
    high = max(left[1], right[1], key=lambda point: point[1])
    return low, high


class Tracks:
    """Tracks by metric name, for a fixed set of metrics."""

    def __init__(self, names: Iterable[str]) -> None:
        self._tracks = {name: Track() for name in names}
        self._step = -1

    def observe(self, record: StepRecord) -> None:
        """Take a step. A step at or before the current one means that the run went back."""
        if record.step <= self._step:
            for track in self._tracks.values():
                track.rewind(record.step)
        self._step = record.step
        for name, track in self._tracks.items():
            number = scalar(record.values[name]) if name in record.values else None
            if number is not None:
                track.append(record.step, number)

    def points(self, name: str) -> list[_Point]:
        """The course of a metric; empty if it was never read."""
        return self._tracks[name].points() if name in self._tracks else []

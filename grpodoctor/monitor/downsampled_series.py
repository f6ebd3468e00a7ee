"""Metrics over a whole run in constant memory, for charts."""

from __future__ import annotations

from collections.abc import Iterable

from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import scalar

CAPACITY = 1024
"""Buckets per series: more than a chart has pixels."""

_Point = tuple[int, float]


class DownsampledSeries:
    """One metric over a run of any length.

    Readings go into buckets of equal width. A bucket keeps its lowest and its highest reading, so
    spikes stay visible. When all buckets are full, neighboring buckets are merged.
    """

    __slots__ = ("_buckets", "_filled", "_width")

    def __init__(self) -> None:
        self._buckets: list[tuple[_Point, _Point]] = []
        self._width = 1
        self._filled = 0

    def append(self, step: int, value: float) -> None:
        """Add a reading."""
        point = (step, value)
        if self._buckets and self._filled < self._width:
            self._buckets[-1] = _merge(self._buckets[-1], (point, point))
            self._filled += 1
            return
        if len(self._buckets) == CAPACITY:
            pairs = zip(self._buckets[::2], self._buckets[1::2], strict=True)
            self._buckets = [_merge(left, right) for left, right in pairs]
            self._width *= 2
        self._buckets.append((point, point))
        self._filled = 1

    def rewind(self, step: int) -> None:
        """Remove the readings from `step` on: the run was resumed from an earlier step."""
        kept = [bucket for bucket in self._buckets if max(low[0] for low in bucket) < step]
        if len(kept) < len(self._buckets):
            self._buckets, self._filled = kept, self._width

    def copy(self) -> DownsampledSeries:
        """The same readings, to which nothing is added any more."""
        copied = DownsampledSeries()
        copied._buckets, copied._width = list(self._buckets), self._width
        copied._filled = self._filled
        return copied

    def points(self) -> list[_Point]:
        """Pairs of step and value, ordered by step."""
        return sorted({point for bucket in self._buckets for point in bucket})


def _merge(left: tuple[_Point, _Point], right: tuple[_Point, _Point]) -> tuple[_Point, _Point]:
    low = min(left[0], right[0], key=lambda point: point[1])
    high = max(left[1], right[1], key=lambda point: point[1])
    return low, high


class SeriesByMetric:
    """One downsampled series for each of a fixed set of metrics."""

    def __init__(self, metrics: Iterable[str]) -> None:
        self._series = {metric: DownsampledSeries() for metric in metrics}
        self._step = -1

    def observe(self, record: StepRecord) -> None:
        """Add a step. A step at or before the current one means that the run was rewound."""
        if record.step <= self._step:
            for series in self._series.values():
                series.rewind(record.step)
        self._step = record.step
        for metric, series in self._series.items():
            value = scalar(record.values[metric]) if metric in record.values else None
            if value is not None:
                series.append(record.step, value)

    def copy(self) -> SeriesByMetric:
        """The series as they are now, for a reader in another thread."""
        copied = SeriesByMetric(())
        copied._series = {metric: series.copy() for metric, series in self._series.items()}
        copied._step = self._step
        return copied

    def points(self, metric: str) -> list[_Point]:
        """Pairs of step and value of a metric; empty if it was never read."""
        return self._series[metric].points() if metric in self._series else []

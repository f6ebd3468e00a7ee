"""Metrics over a whole run in constant memory, for charts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import Max, Mean, Min, Reading, scalar

CAPACITY = 1024
"""Buckets per series: more than a chart has pixels."""
PART_CAPACITY = 128
"""Buckets per series of one layer, position or engine: columns of a heat map."""
FURTHER_CAPACITY = 256
"""Buckets per series of a metric that is drawn on request only."""
MOST_PARTS = 768
"""Series of layers, positions and engines; sixty layers need 300 of them."""


LOGGED = "logged/"
"""Prefix of a series of numbers that the log contains under a key without a metric."""


class Point(NamedTuple):
    """A reading in a chart."""

    step: int
    value: float
    """NaN or infinite if the run logged such a number."""
    where: str = ""
    """Id of the sequence of an extreme value; empty if there is none."""


class MeanPoint(NamedTuple):
    """The mean of some consecutive readings."""

    step: float
    """The middle of their steps."""
    total: float
    readings: int


@dataclass(slots=True)
class _Bucket:
    """The extremes and the sum of some consecutive readings."""

    low: Point | None = None
    high: Point | None = None
    nonfinite: Point | None = None
    """The first reading that is not a finite number."""
    total: float = 0.0
    count: int = 0
    """Sum and number of the finite readings."""

    def add(self, point: Point) -> None:
        """Add a reading that is later than all others."""
        if not math.isfinite(point.value):
            self.nonfinite = self.nonfinite or point
            return
        self.total += point.value
        self.count += 1
        if self.low is None or point.value < self.low.value:
            self.low = point
        if self.high is None or point.value > self.high.value:
            self.high = point

    def points(self) -> list[Point]:
        """The readings that the bucket kept, by step."""
        kept = {point.step: point for point in (self.low, self.high, self.nonfinite) if point}
        return [kept[step] for step in sorted(kept)]

    def mean(self) -> MeanPoint | None:
        """The finite readings as their mean; None if there are none."""
        if self.low is None or self.high is None:
            return None
        return MeanPoint((self.low.step + self.high.step) / 2, self.total, self.count)


class DownsampledSeries:
    """One metric over a run of any length.

    Readings go into buckets of equal width. A bucket keeps its lowest and its highest reading, so
    spikes stay visible, and its first reading that is NaN or infinite. When all buckets are full,
    neighboring buckets are merged.
    """

    __slots__ = ("_buckets", "_capacity", "_filled", "_width")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._buckets: list[_Bucket] = []
        self._width = 1
        self._filled = 0

    def append(self, step: int, value: float, where: str = "") -> None:
        """Add a reading, with the id of its sequence if it is an extreme value."""
        if not self._buckets or self._filled >= self._width:
            if len(self._buckets) == self._capacity:
                pairs = zip(self._buckets[::2], self._buckets[1::2], strict=True)
                self._buckets = [_merged(one, other) for one, other in pairs]
                self._width *= 2
            self._buckets.append(_Bucket())
            self._filled = 0
        self._filled += 1
        bucket = self._buckets[-1]
        if bucket.low and bucket.high and bucket.low.value <= value <= bucket.high.value:
            # Most readings of a long run are no extremes.
            bucket.total += value
            bucket.count += 1
        else:
            bucket.add(Point(step, value, where))

    def rewind(self, step: int) -> None:
        """Remove the readings from `step` on: the run was resumed from an earlier step."""
        earlier = []
        for bucket, following in zip_longest(self._buckets, self._buckets[1:]):
            if following is not None and following.points()[0].step <= step:
                earlier.append(bucket)  # all its readings are earlier
            elif points := [point for point in bucket.points() if point.step < step]:
                earlier.append(_bucket_of(points))
        self._buckets = earlier
        self._filled = self._width  # the next reading starts a bucket

    def copy(self) -> DownsampledSeries:
        """The same readings, to which nothing is added any more."""
        copied = DownsampledSeries(self._capacity)
        # Only the last bucket changes later.
        copied._buckets = [*self._buckets[:-1], *map(replace, self._buckets[-1:])]
        copied._width, copied._filled = self._width, self._filled
        return copied

    def __bool__(self) -> bool:
        """Whether there is a reading."""
        return bool(self._buckets)

    def points(self) -> list[Point]:
        """The readings kept, ordered by step."""
        return [point for bucket in self._buckets for point in bucket.points()]

    def means(self) -> list[MeanPoint]:
        """The mean of each bucket, ordered by step."""
        return [mean for bucket in self._buckets if (mean := bucket.mean()) is not None]


def _merged(one: _Bucket, other: _Bucket) -> _Bucket:
    bucket = _bucket_of(one.points() + other.points())
    bucket.total, bucket.count = one.total + other.total, one.count + other.count
    return bucket


def _bucket_of(points: Iterable[Point]) -> _Bucket:
    bucket = _Bucket()
    for point in points:
        bucket.add(point)
    return bucket


class SeriesByMetric:
    """One downsampled series for each of a set of metrics, and for parts of some metrics.

    Args:
        metrics: the metrics to keep.
        divided: metrics whose layers, positions, probabilities and engines are kept too.
        further: number of other metrics and logged keys to keep, the first ones that occur.
    """

    def __init__(
        self, metrics: Iterable[str], divided: Iterable[str] = (), *, further: int = 0
    ) -> None:
        self._further = further
        self._series = {metric: DownsampledSeries() for metric in metrics}
        self._divided = frozenset(divided)
        self._parts: dict[str, DownsampledSeries] = {}
        self._clock = DownsampledSeries()
        self._step = -1

    def observe(self, record: StepRecord) -> None:
        """Add a step. A step at or before the current one means that the run was rewound."""
        if record.step <= self._step:
            for series in (*self._series.values(), *self._parts.values(), self._clock):
                series.rewind(record.step)
        self._step = record.step
        if record.time > 0:
            self._clock.append(record.step, record.time)
        if self._further:
            self._add_further(record)
        if record.logged:
            self._add_logged(record)
        for metric, series in self._series.items():
            if metric in record.values:
                _append(series, record.step, record.values[metric])
        self._add_parts(record)

    def _add_parts(self, record: StepRecord) -> None:
        """Add the readings of layers, positions and engines."""
        for name, reading in record.values.items():
            if _divided_metric(name) in self._divided and (part := self._part(name)) is not None:
                _append(part, record.step, reading)

    def _add_logged(self, record: StepRecord) -> None:
        """Add the numbers whose keys give no metric."""
        for key, number in record.logged.items():
            if (series := self._series.get(LOGGED + key)) is not None:
                series.append(record.step, number)

    def _add_further(self, record: StepRecord) -> None:
        """Begin the series of metrics that occur for the first time."""
        logged = [LOGGED + key for key in record.logged]
        for name in (*record.values, *logged) if logged else record.values:
            if name not in self._series and not _divided_metric(name) and self._further:
                self._series[name] = DownsampledSeries(FURTHER_CAPACITY)
                self._further -= 1

    @property
    def metrics(self) -> list[str]:
        """The metrics that have readings, by name."""
        return sorted(name for name, series in self._series.items() if series)

    def _part(self, name: str) -> DownsampledSeries | None:
        """The series of a layer, position or engine; None if there are too many."""
        if name not in self._parts:
            if len(self._parts) >= MOST_PARTS:
                return None
            self._parts[name] = DownsampledSeries(PART_CAPACITY)
        return self._parts[name]

    def copy(self) -> SeriesByMetric:
        """The series as they are now, for a reader in another thread."""
        copied = SeriesByMetric((), self._divided)
        copied._series = {metric: series.copy() for metric, series in self._series.items()}
        copied._parts = {name: series.copy() for name, series in self._parts.items()}
        copied._clock = self._clock.copy()
        copied._step = self._step
        return copied

    def points(self, metric: str) -> list[Point]:
        """The readings of a metric that were kept, by step; empty if it was never read."""
        series = self._series.get(metric) or self._parts.get(metric)
        return series.points() if series else []

    def means(self, metric: str) -> list[MeanPoint]:
        """The readings of a metric as means of consecutive ones; empty if it was never read."""
        series = self._series.get(metric)
        return series.means() if series else []

    def times(self) -> list[Point]:
        """The Unix time at the end of some steps; empty if the run does not record it."""
        return self._clock.points()

    def parts(self, metric: str, kind: str) -> dict[str, list[Point]]:
        """The readings of a metric's parts, by the part's name, in the order of their numbers.

        Args:
            metric: a metric whose parts are kept.
            kind: `layer`, `position`, `probability` or `engine`.
        """
        prefix = f"{metric}/{kind}/"
        names = [name for name in self._parts if name.startswith(prefix)]
        return {
            name.removeprefix(prefix): self._parts[name].points()
            for name in sorted(names, key=_natural)
        }


_PART = re.compile(r"/(?:layer|position|probability|engine)/[^/]+$")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)")


@lru_cache(maxsize=4096)
def _divided_metric(name: str) -> str:
    """The metric that a name has a part of; empty if it names no part."""
    match = _PART.search(name)
    return name[: match.start()] if match else ""


def _natural(name: str) -> list[tuple[float, str]]:
    """Orders layer 10 after layer 9."""
    return [(float(part), "") if number % 2 else (0.0, part)
            for number, part in enumerate(_NUMBER.split(name))]  # fmt: skip


def _append(series: DownsampledSeries, step: int, reading: Reading) -> None:
    """Add a reading; one without a number is left out, one that is not finite is kept as NaN."""
    value = scalar(reading)
    if value is not None:
        where = reading.where if isinstance(reading, Max | Min) else None
        series.append(step, value, where or "")
    elif isinstance(reading, Mean) and reading.nonfinite:
        series.append(step, math.nan)

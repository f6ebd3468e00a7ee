"""What a rule sees at a step: bounded windows, the run's own start, knobs, the latest readings.

Memory is constant however long the run: a window per metric, and a baseline of fixed size.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from grpodoctor.runs.records import Manifest, StepRecord
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import ABSENT, Reading, scalar

WINDOW = 128
"""Readings kept per metric: enough for a slope, small enough for hundreds of metrics."""

BASELINE = 10
"""Readings that make the run's own start: `phenomena.md` shows sick runs diverge after these."""

_MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True, slots=True)
class Baseline:
    """The run's own start for one metric: robust level and spread."""

    level: float
    """Median of the first `BASELINE` readings."""
    spread: float
    """Their median absolute deviation, scaled to a standard deviation under normality."""


class Series:
    """The latest readings of one metric, and its start."""

    __slots__ = ("_first", "_steps", "_values", "baseline")

    def __init__(self) -> None:
        self._steps: deque[int] = deque(maxlen=WINDOW)
        self._values: deque[float] = deque(maxlen=WINDOW)
        self._first: list[tuple[int, float]] = []
        self.baseline: Baseline | None = None

    def append(self, step: int, value: float) -> None:
        """Take the reading of a step, which must be later than all before."""
        self._steps.append(step)
        self._values.append(value)
        if len(self._first) < BASELINE:
            self._first.append((step, value))
            if len(self._first) == BASELINE:
                self.baseline = self._measure_start()

    def rewind(self, step: int) -> None:
        """Forget the readings at `step` and after: the run went back."""
        while self._steps and self._steps[-1] >= step:
            self._steps.pop()
            self._values.pop()
        kept = [pair for pair in self._first if pair[0] < step]
        if len(kept) < len(self._first):
            self._first, self.baseline = kept, None

    def _measure_start(self) -> Baseline:
        values = [value for _, value in self._first]
        level = statistics.median(values)
        deviation = statistics.median(abs(value - level) for value in values)
        return Baseline(level, deviation * _MAD_TO_SIGMA)

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[tuple[int, float]]:
        return iter(zip(self._steps, self._values, strict=True))

    @property
    def last(self) -> float:
        """The latest reading."""
        return self._values[-1]

    def tail(self, count: int) -> list[float]:
        """The latest `count` readings, oldest first; fewer if there are fewer."""
        start = max(0, len(self._values) - count)
        return list(islice(self._values, start, None))

    def steps(self, count: int) -> list[int]:
        """The steps of `tail(count)`."""
        start = max(0, len(self._steps) - count)
        return list(islice(self._steps, start, None))


_EMPTY = Series()


@dataclass
class Chart:
    """Everything a rule may look at. Rules read it and change nothing."""

    manifest: Manifest = field(default_factory=Manifest)
    step: int = -1
    """The current step; -1 before the first."""
    steps_seen: int = 0
    """Steps observed since the run (or its last rewind to zero) began."""
    knobs: dict[str, Setting] = field(default_factory=dict)
    """The knobs in force at the current step."""
    knobs_changed_at: int = -1
    """The step of the latest change of a knob; -1 if none changed."""
    readings: Mapping[str, Reading] = field(default_factory=dict)
    """The readings of the current step, by canonical name."""
    _series: dict[str, Series] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.knobs = {**self.manifest.knobs, **self.knobs}

    def observe(self, record: StepRecord) -> None:
        """Take a step. A step at or before the current one means that the run went back."""
        if record.step <= self.step:
            self._rewind(record.step)
        self.step = record.step
        self.steps_seen += 1
        self.readings = record.values
        if record.knobs:
            self.knobs.update(record.knobs)
            self.knobs_changed_at = record.step
        for name, reading in record.values.items():
            number = scalar(reading)
            if number is not None:
                self._series.setdefault(name, Series()).append(record.step, number)

    def _rewind(self, step: int) -> None:
        for series in self._series.values():
            series.rewind(step)
        if self.knobs_changed_at >= step:
            self.knobs_changed_at = -1

    def reading(self, name: str) -> Reading:
        """The reading of a metric at the current step."""
        return self.readings.get(name, ABSENT)

    def value(self, name: str) -> float | None:
        """The number of a metric at the current step; None if it has none."""
        return scalar(self.reading(name))

    def series(self, name: str) -> Series:
        """The window of a metric; empty if it was never read."""
        return self._series.get(name, _EMPTY)

    def baseline(self, name: str) -> Baseline | None:
        """The run's own start of a metric; None until it has been read often enough."""
        return self.series(name).baseline

    def names(self) -> list[str]:
        """Metrics read at least once."""
        return list(self._series)

"""The chart, which is the input of a rule: windows of metrics, baselines, knobs, latest readings.

Its memory does not grow with the length of the run: each metric has a window and a baseline of
fixed size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from grpodoctor.frameworks.complete_config import CompleteConfig, complete_config
from grpodoctor.runs.inferred_groups import ZERO_VARIANCE, inferred_group_rates
from grpodoctor.runs.records import Manifest, StepRecord
from grpodoctor.runs.series import WINDOW, Baseline, Series
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import ABSENT, Reading, scalar

MOST_METRICS = 4096
"""Windows kept, so that a log with a new name at each step does not fill the memory."""

MOST_RESUMES = 64
"""Resumes kept; a job that restarts more often has another problem."""

MOST_KNOB_CHANGES = 256
"""Knob changes that can be reverted when a run goes back."""


MOST_LAYOUTS = 256
"""Sets of logged names that are remembered; most logs have two, with and without evaluation."""


_EMPTY = Series()


class _SeriesByName(dict[str, Series]):
    """The windows by metric; the empty one for a metric without readings, which is not added."""

    def __missing__(self, name: str) -> Series:
        return _EMPTY


class _Layout(NamedTuple):
    """What the chart keeps about a set of metrics, which is the same at most steps of a run."""

    fresh: frozenset[str]
    """The metrics with a window."""
    is_fresh: Callable[[object], bool]
    appends: tuple[Callable[[int, float], None], ...]
    """Adds a reading to the window of each metric; one without a window ignores it."""


_VALUE: Callable[[Reading], float] = attrgetter("value")


def _ignore(step: int, value: float) -> None:
    """Ignore a reading, since the chart has as many windows as it may."""


@dataclass(frozen=True, slots=True)
class Resume:
    """A run that went back to an earlier step, or continued after a pause."""

    step: int
    """First step of the new branch."""
    abandoned_step: int
    """Last step of the branch before it."""
    starts_over: bool = False
    """Whether the run began again, at its first step or before: nothing of it continues."""


@dataclass
class Chart:
    """The input of all rules, which must not change it."""

    manifest: Manifest = field(default_factory=Manifest)
    step: int = -1
    """The current step; -1 before the first."""
    steps_seen: int = 0
    """Steps observed since the start, or since the run went back further than a window."""
    knobs: dict[str, Setting] = field(default_factory=dict)
    """The knobs at the current step."""
    knobs_changed_at: int = -1
    """The step of the latest knob change; -1 if none changed."""
    readings: Mapping[str, Reading] = field(default_factory=dict)
    """The readings of the current step, by canonical name."""
    fresh: frozenset[str] = frozenset()
    """Metrics with a number at the current step, including inferred ones."""
    is_complete: bool = True
    """Whether each reading of the current step is a number in a window."""
    resumes: deque[Resume] = field(default_factory=lambda: deque(maxlen=MOST_RESUMES))
    """The times that the run went back to an earlier step, in the order of the log."""
    nonfinite: dict[str, deque[int]] = field(default_factory=dict)
    """Of each metric, the latest steps at which all its entries were NaN or infinite."""
    series: Callable[[str], Series] = field(init=False, repr=False)
    """Returns the window of a metric by its name; an empty one if it has no readings."""
    is_fresh: Callable[[str], bool] = field(init=False, repr=False)
    """Whether a metric has a number at the current step."""
    _first_step: int | None = None
    _series: _SeriesByName = field(default_factory=_SeriesByName)
    _layouts: dict[tuple[str, ...], _Layout] = field(default_factory=dict)
    """By the names of the metrics with a number at a step, in order."""
    _steps: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _knob_changes: deque[tuple[int, dict[str, Setting | None]]] = field(
        default_factory=lambda: deque(maxlen=MOST_KNOB_CHANGES)
    )
    """Step of each change, and the previous values of the changed knobs; None if not set."""

    _config: CompleteConfig | None = None

    def __post_init__(self) -> None:
        self.knobs = {**self.manifest.knobs, **self.knobs}
        # Methods of this class would take three times as long, and rules ask at every step.
        self.series = self._series.__getitem__
        self.is_fresh = self.fresh.__contains__

    @property
    def config(self) -> CompleteConfig:
        """What is known about the run's configuration besides its knobs, at the current step."""
        if self._config is None:
            given = self.manifest
            changes = {
                name: setting
                for name, setting in self.knobs.items()
                if given.knobs.get(name) != setting
            }
            self._config = complete_config(given.framework, given.config, given.knobs, changes)
        return self._config

    def observe(self, record: StepRecord) -> None:
        """Add a step. A step at or before the current one means that the run went back."""
        if record.step <= self.step:
            starts_over = self._first_step is not None and record.step <= self._first_step
            self.resumes.append(Resume(record.step, self.step, starts_over))
            self._rewind(record.step)
        if self._first_step is None or record.step < self._first_step:
            self._first_step = record.step
        self.step = record.step
        self.steps_seen += 1
        self._steps.append(record.step)
        self.readings = record.values
        if record.knobs:
            self._change_knobs(record.step, record.knobs)
        numbers = _all_numbers(record.values) if ZERO_VARIANCE in record.values else None
        if numbers is not None:
            self._append_all(record.step, tuple(record.values), numbers)
            self.is_complete = len(self.fresh) == len(numbers)
        else:
            self._append_known(record)

    def _append_known(self, record: StepRecord) -> None:
        """Add the readings that have a number, and what they imply of the groups."""
        numbers = _numbers(record.values)
        count = len(numbers)
        if count < len(record.values):
            self._note_nonfinite(record)
        if ZERO_VARIANCE not in record.values:
            numbers.update(inferred_group_rates(numbers, self.knobs, self.manifest.framework))
        self._append_all(record.step, tuple(numbers), numbers.values())
        self.is_complete = count == len(record.values) and len(self.fresh) == len(numbers)

    def _note_nonfinite(self, record: StepRecord) -> None:
        """Keep the step of readings without any finite entry."""
        for name, reading in record.values.items():
            if scalar(reading) is not None or not getattr(reading, "nonfinite", 0):
                continue
            if name in self.nonfinite or len(self.nonfinite) < MOST_METRICS:
                self.nonfinite.setdefault(name, deque(maxlen=WINDOW)).append(record.step)

    def _append_all(self, step: int, names: tuple[str, ...], numbers: Iterable[float]) -> None:
        """Add the readings of a step to the windows of their metrics, in the same order."""
        layout = self._layouts.get(names)
        if layout is None:
            if len(self._layouts) >= MOST_LAYOUTS:
                self._layouts.clear()
            layout = self._layouts[names] = self._layout_of(names)
        self.fresh, self.is_fresh = layout.fresh, layout.is_fresh
        for append, number in zip(layout.appends, numbers, strict=True):
            append(step, number)

    def _layout_of(self, names: tuple[str, ...]) -> _Layout:
        """The windows of these metrics, which are made for new ones."""
        known, appends = self._series, []
        for name in names:
            if name not in known and len(known) < MOST_METRICS:
                known[name] = Series()
            appends.append(known[name].append if name in known else _ignore)
        fresh = frozenset(name for name in names if name in known)
        return _Layout(fresh, fresh.__contains__, tuple(appends))

    def _change_knobs(self, step: int, knobs: Mapping[str, Setting]) -> None:
        before = {name: self.knobs.get(name) for name in knobs}
        changed = {name: before[name] for name in knobs if before[name] != knobs[name]}
        if changed:
            self._knob_changes.append((step, changed))
            self.knobs.update(knobs)
            self.knobs_changed_at, self._config = step, None

    def _rewind(self, step: int) -> None:
        for series in self._series.values():
            series.rewind(step)
        for steps in self.nonfinite.values():
            while steps and steps[-1] >= step:
                steps.pop()
        while self._steps and self._steps[-1] >= step:
            self._steps.pop()
            self.steps_seen -= 1
        if not self._steps:
            self.steps_seen = 0
        while self._knob_changes and self._knob_changes[-1][0] >= step:
            _restore(self.knobs, self._knob_changes.pop()[1])
            self._config = None
        self.knobs_changed_at = self._knob_changes[-1][0] if self._knob_changes else -1

    def knobs_at(self, step: int) -> dict[str, Setting]:
        """The knobs that were in force at an earlier step."""
        knobs = dict(self.knobs)
        for changed_at, before in reversed(self._knob_changes):
            if changed_at <= step:
                break
            _restore(knobs, before)
        return knobs

    def reading(self, name: str) -> Reading:
        """The reading of a metric at the current step."""
        return self.readings.get(name, ABSENT)

    def value(self, name: str) -> float | None:
        """The number of a metric at the current step; None if it has none."""
        return scalar(self.reading(name))

    def baseline(self, name: str) -> Baseline | None:
        """The baseline of a metric; None until it has enough readings."""
        return self.series(name).baseline

    def names(self) -> list[str]:
        """Metrics with at least one reading."""
        return list(self._series)


def _all_numbers(readings: Mapping[str, Reading]) -> list[float] | None:
    """The numbers of the readings, in their order; None if `_numbers` must look at each of them.

    In most steps each reading has one, so that a NaN in their sum is the only sign looked for.
    """
    try:
        numbers = list(map(_VALUE, readings.values()))
    except AttributeError:  # a reading that is absent or not applicable
        return None
    total = sum(numbers)
    return numbers if total == total else None  # NaN differs from itself


def _numbers(readings: Mapping[str, Reading]) -> dict[str, float]:
    """The numbers of the readings that have one, as `scalar` finds them: NaN differs from itself.

    A call for each of them would take as long again.
    """
    try:  # the usual case: each reading has this attribute
        return {
            name: number
            for name, reading in readings.items()
            if (number := reading.value) is not None  # type: ignore[union-attr]  # caught below
            and number == number
        }
    except AttributeError:
        return {
            name: number
            for name, reading in readings.items()
            if (number := getattr(reading, "value", None)) is not None and number == number
        }


def _restore(knobs: dict[str, Setting], before: Mapping[str, Setting | None]) -> None:
    """Give knobs their earlier values; None removes one."""
    for name, setting in before.items():
        if setting is None:
            knobs.pop(name, None)
        else:
            knobs[name] = setting

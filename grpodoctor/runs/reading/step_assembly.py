"""Assembling steps from the rows of one or several growing logs."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import NotApplicable, Reading, merge, scalar

_TOLERANCE = 1e-3
"""Relative difference between two logs of one value; consoles print four digits."""

_MAX_KEPT = 20
"""Conflicts and rewinds that are kept for the notes."""

MAX_LAG = 16
"""Steps by which one of two writers of a file may be ahead of the other."""

_MAX_REVISED = 2000
"""Steps that can be returned a second time when the logs of a job go back one after the other."""

_PRINTED = 1.001e-3
"""Two values this close print alike with three decimals, as on the console of early verl."""

MAX_PENDING = 100_000
"""Steps held back at most, so that a log whose steps never advance does not fill the memory."""


@dataclass
class _Pending:
    """A step that may be incomplete."""

    values: dict[str, Reading] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    """The log of each value."""
    time: float = 0.0

    def forget(self, log: str) -> None:
        """Drop the values of a log."""
        for name in [name for name, origin in self.origins.items() if origin == log]:
            del self.values[name], self.origins[name]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two logs with different values of one metric at one step."""

    step: int
    metric: str
    kept: float
    other: float
    logs: tuple[str, str]
    """The log of the kept value and the log of the other one."""


class StepAssembly:
    """Joins rows into steps.

    A log may write a step in several rows, and a directory may hold several logs of one run. A step
    is complete when every log has moved past it, or when the caller flushes.
    """

    def __init__(self) -> None:
        self._pending: dict[int, _Pending] = {}
        self._order: list[int] = []
        """The pending steps as a heap, since a log may have a million steps."""
        self._passed: dict[str, int] = {}
        """The step that each log has moved past; steps below the lowest one are complete."""
        self._last: dict[str, int] = {}
        """The step of each log's latest row."""
        self._lag: dict[str, int] = {}
        """How many steps the slower of two writers of a log was behind."""
        self._recent: dict[int, _Pending] = {}
        """The steps returned last; a slower writer may still add to them."""
        self._returned = -1
        self.conflicts: list[Conflict] = []
        """The first conflicts; `conflict_count` counts all."""
        self.conflict_count = 0
        self.rewinds: list[int] = []
        """The steps to which logs went back, latest last."""
        self.rewind_count = 0
        self.rewritten = 0
        """Rows that repeat a step of the same log."""
        self.several_rows_per_step: set[str] = set()
        """Logs with several rows per step, whose readings are merged."""

    def last_of(self, log: str) -> int:
        """The step of a log's latest row; -1 before the first row."""
        return self._last.get(log, -1)

    @property
    def is_waiting(self) -> bool:
        """Whether steps are held back."""
        return bool(self._pending)

    def open_log(self, log: str) -> None:
        """Add a log that steps wait for."""
        self._passed.setdefault(log, -1)

    def close_log(self, log: str) -> None:
        """Remove a log that ended or whose file is gone."""
        self._passed.pop(log, None)

    def add(
        self, log: str, step: int, values: Mapping[str, Reading], time: float = 0.0
    ) -> list[StepRecord]:
        """Add a row; return the steps that are complete now.

        A row of an earlier step means that the log went back, as a resumed job does; the last
        value of a step counts. If it is the only log, the pending steps are returned at once.
        Otherwise the values of this log from that step on are dropped, and other logs may go back
        too. A row that adds metrics to a recent step is not a rewind: two processes write the file,
        and from then on steps wait for the slower one.
        """
        complete: list[StepRecord] = []
        if step < self._last.get(log, -1):
            if self._adds_metrics(log, step, values):
                self._wait_for_slower_writer(log, step)
            else:
                complete = self._go_back(log, step)
        self._last[log] = max(step, self._last.get(log, -1)) if self._lag.get(log) else step
        self._passed[log] = self._last[log] - self._lag.get(log, 0)
        if step <= self._returned:
            return complete
        if step not in self._pending:
            self._pending[step] = _Pending()
            heapq.heappush(self._order, step)
        self._join(log, self._pending[step], step, values, time)
        return complete + self._complete()

    def _adds_metrics(self, log: str, step: int, values: Mapping[str, Reading]) -> bool:
        """Whether a row of a step behind the latest one has metrics that the step lacks."""
        latest = self._last[log]
        candidates = (
            self._pending.get(number) or self._recent.get(number) for number in (step, latest)
        )
        before = next(filter(None, candidates), None)
        if before is None or latest - step > MAX_LAG or not values:
            return False
        return 2 * sum(before.origins.get(name) == log for name in values) <= len(values)

    def _wait_for_slower_writer(self, log: str, step: int) -> None:
        """Take back the steps from `step` on, which were returned too early."""
        self._lag[log] = max(self._lag.get(log, 0), self._last[log] - step)
        self._take_back(step)

    def _take_back(self, step: int) -> None:
        """Hold back the steps from `step` on, to return them again with more values."""
        for late in [recent for recent in self._recent if recent >= step]:
            self._pending[late] = self._recent.pop(late)
            heapq.heappush(self._order, late)
        self._returned = min(self._returned, step - 1)

    def _go_back(self, log: str, step: int) -> list[StepRecord]:
        self.rewind_count += 1
        self.rewinds = [*self.rewinds[-_MAX_KEPT:], step]
        alone = len(self._passed) <= 1
        complete = self.flush() if alone else []
        if alone:
            self._recent.clear()
        self._take_back(step)
        for late in [pending for pending in self._pending if pending >= step]:
            self._pending[late].forget(log)
        self._last.pop(log)
        self._passed = {name: min(last, step - 1) for name, last in self._passed.items()}
        return complete

    def _join(
        self, log: str, pending: _Pending, step: int, values: Mapping[str, Reading], time: float
    ) -> None:
        repeated = [name for name in values if pending.origins.get(name) == log]
        if repeated and log in self.several_rows_per_step:
            merged = {name: merge(pending.values[name], values[name]) for name in repeated}
            values = {**values, **merged}
        elif 2 * len(repeated) > len(values):
            self.rewritten += 1
            pending.forget(log)
        for name, reading in values.items():
            before, origin = pending.values.get(name), pending.origins.get(name, log)
            if before is not None and origin != log:
                if readings_differ(before, reading):
                    self._note_conflict(step, name, before, reading, (origin, log))
                continue
            pending.values[name], pending.origins[name] = reading, log
        pending.time = max(pending.time, time)

    def _note_conflict(
        self, step: int, name: str, kept: Reading, other: Reading, logs: tuple[str, str]
    ) -> None:
        self.conflict_count += 1
        left, right = scalar(kept), scalar(other)
        if left is not None and right is not None and len(self.conflicts) < _MAX_KEPT:
            self.conflicts.append(Conflict(step, name, left, right, logs))

    def _complete(self) -> list[StepRecord]:
        border = min(self._passed.values(), default=-1)
        if len(self._pending) > MAX_PENDING:
            return self.flush()
        complete = []
        while self._order and self._order[0] < border:
            complete.append(heapq.heappop(self._order))
        return self._pop(complete)

    def flush(self) -> list[StepRecord]:
        """Return all pending steps: the logs ended, or were silent for a while."""
        self._order.clear()
        return self._pop(list(self._pending))

    def _pop(self, steps: list[int]) -> list[StepRecord]:
        records = []
        for step in sorted(set(steps)):
            pending = self._pending.pop(step)
            records.append(StepRecord(step, pending.values, time=pending.time))
            self._returned = max(self._returned, step)
            self._recent[step] = pending
        kept = MAX_LAG if len(self._passed) <= 1 else _MAX_REVISED
        while len(self._recent) > kept:
            del self._recent[next(iter(self._recent))]
        return records


def readings_differ(left: Reading, right: Reading) -> bool:
    """Whether two readings of one value differ by more than the digits that logs print."""
    if isinstance(left, NotApplicable) or isinstance(right, NotApplicable):
        return False
    first, second = scalar(left), scalar(right)
    if first is None or second is None:
        return False
    difference = abs(first - second)
    if difference <= _PRINTED / 2 and any(round(value, 3) == value for value in (first, second)):
        return False
    return not difference <= _TOLERANCE * max(abs(first), abs(second)) + 1e-9

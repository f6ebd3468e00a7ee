"""Assembling steps from the rows of one or several growing logs."""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from grpodoctor.runs.reading.rows.heldout_sets import HeldOutSets
from grpodoctor.runs.reading.rows.heldout_success import HeldOutSuccess
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

MIN_RUN_STEPS = 3
"""Steps of a run that was followed by another one in its log; shorter ones are failed starts."""

_NOWHERE: Origin = ("", "")

MAX_PENDING = 100_000
"""Steps held back at most, so that a log whose steps never advance does not fill the memory."""


Origin = tuple[str, str]


@dataclass
class _Pending:
    """A step that may be incomplete."""

    values: dict[str, Reading] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    """The log of each value, and the counter of its row."""
    time: float = 0.0
    logged: dict[str, float] = field(default_factory=dict)
    """Numbers whose keys give no metric."""

    def forget(self, log: str, counter: str | None = None) -> None:
        """Drop the values of a log, or only those of its rows with one counter."""
        for name, origin in list(self.origins.items()):
            if origin[0] == log and counter in (None, origin[1]):
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
        self._ranks: dict[str, int] = {}
        """The logs in the order in which they were opened. Rows arrive in another order: of a large
        and a small log, the small one is read first to its end."""
        self._last: dict[str, int] = {}
        """The step of each log's latest row."""
        self._first: dict[str, int] = {}
        """The smallest step of each log."""
        self._lag: dict[str, int] = {}
        """How many steps the slower of two writers of a log was behind."""
        self._recent: OrderedDict[int, _Pending] = OrderedDict()
        """The steps returned last; a slower writer may still add to them."""
        self._returned = -1
        self.conflicts: list[Conflict] = []
        """The first conflicts; `conflict_count` counts all."""
        self.conflict_count = 0
        self.rewinds: list[int] = []
        """The steps to which logs went back, latest last."""
        self.rewind_count = 0
        self.rewritten = 0
        """Rows that repeat most metrics of a step of the same log."""
        self.earlier_runs: list[tuple[int, int]] = []
        """First and last step of each run that another run follows in the same log."""
        self.late_rows = 0
        """Rows that came too late for their step, which was returned long before."""
        self._heldout, self._success = HeldOutSets(), HeldOutSuccess()
        self._in_parts = False
        """Whether rows were added to a step after it was returned."""
        self.several_rows_per_step: set[Origin] = set()
        """Logs and counters with several rows per step, whose readings are merged."""

    def last_of(self, log: str) -> int:
        """The step of a log's latest row; -1 before the first row."""
        return self._last.get(log, -1)

    @property
    def is_waiting(self) -> bool:
        """Whether steps are held back that a flush would return."""
        return len(self._pending) > (1 if self._in_parts else 0)

    def open_log(self, log: str) -> None:
        """Add a log that steps wait for. If logs disagree, the one opened first counts."""
        self._passed.setdefault(log, -1)
        self._ranks.setdefault(log, len(self._ranks))

    def close_log(self, log: str) -> None:
        """Remove a log that ended or whose file is gone."""
        self._passed.pop(log, None)

    def add(
        self,
        log: str,
        step: int,
        values: Mapping[str, Reading],
        time: float = 0.0,
        *,
        counter: str = "",
        restarted: bool | None = None,
        logged: Mapping[str, float] | None = None,
    ) -> list[StepRecord]:
        """Add a row; return the steps that are complete now.

        A row of an earlier step means that the log went back, as a resumed job does; the last
        value of a step counts. If it is the only log, the pending steps are returned at once.
        Otherwise the values of this log from that step on are dropped, and other logs may go back
        too. A row that adds metrics to a recent step is not a rewind: two processes write the file,
        and from then on steps wait for the slower one.

        Args:
            log: the log.
            step: the row's step.
            values: its readings.
            time: Unix time; 0 if unknown.
            counter: what the step counts. Rows with another counter do not replace its readings.
            restarted: whether the job was restarted at this step; by default, this is decided by
                the readings.
            logged: numbers whose keys give no metric; the last ones of a step count.
        """
        complete: list[StepRecord] = []
        if log not in self._ranks:
            self._ranks[log] = len(self._ranks)
        last = self._last.get(log, -1)
        if restarted or (restarted is None and step < last):
            if not restarted and self._adds_metrics(log, step, values):
                self._wait_for_slower_writer(log, step)
            else:
                complete = self._go_back(log, step)
        elif step < last and self._is_recent(step, last):
            self._wait_for_slower_writer(log, step)
        elif step == last and step <= self._returned:
            self._take_back(step)
            self._in_parts = True
        self._first[log] = min(step, self._first.get(log, step))
        self._last[log] = max(step, self._last.get(log, -1))
        self._passed[log] = self._last[log] - self._lag.get(log, 0)
        if step <= self._returned:
            self.late_rows += 1
            return complete
        source, pending = (log, counter), self._pending_at(step)
        if pending.values:
            self._join(source, pending, step, values)
        else:  # most steps have one row
            pending.values, pending.origins = dict(values), dict.fromkeys(values, source)
        pending.time = max(pending.time, time)
        if logged:
            pending.logged |= logged
        return complete + self._complete()

    def _pending_at(self, step: int) -> _Pending:
        """What is pending of a step, from its first row on."""
        pending = self._pending.get(step)
        if pending is None:
            heapq.heappush(self._order, step)
            pending = self._pending[step] = _Pending()
        return pending

    def _adds_metrics(self, log: str, step: int, values: Mapping[str, Reading]) -> bool:
        """Whether a row of a step behind the latest one has metrics that the step lacks."""
        latest = self._last[log]
        candidates = (
            self._pending.get(number) or self._recent.get(number) for number in (step, latest)
        )
        before = next(filter(None, candidates), None)
        if before is None or latest - step > MAX_LAG or not values:
            return False
        known = sum(before.origins.get(name, _NOWHERE)[0] == log for name in values)
        return 2 * known <= len(values)

    def _is_recent(self, step: int, last: int) -> bool:
        """Whether few steps were logged since; a log may have every hundredth step only."""
        if last - step <= MAX_LAG:
            return True
        steps = itertools.chain(self._pending, self._recent)
        return sum(each > step for each in steps) <= MAX_LAG

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
        first, last = self._first.get(log, step), self._last.get(log, step)
        if step <= first and last - first >= MIN_RUN_STEPS:
            self.earlier_runs.append((first, last))
        else:
            self.rewind_count += 1
            self.rewinds = [*self.rewinds[-_MAX_KEPT:], step]
        alone = len(self._passed) <= 1
        complete = self.flush() if alone else []
        if alone:
            self._recent.clear()
        self._take_back(step)
        for late in [pending for pending in self._pending if pending >= step]:
            self._pending[late].forget(log)
        self._last.pop(log, None)
        self._passed = {name: min(last, step - 1) for name, last in self._passed.items()}
        return complete

    def _join(
        self, source: Origin, pending: _Pending, step: int, values: Mapping[str, Reading]
    ) -> None:
        """Add a further row to a step."""
        log, counter = source
        repeated = [name for name in values if pending.origins.get(name) == source]
        if repeated and source in self.several_rows_per_step:
            merged = {name: merge(pending.values[name], values[name]) for name in repeated}
            values = {**values, **merged}
        elif 2 * len(repeated) > len(values) and any(
            pending.values[name] != values[name] for name in repeated
        ):
            # Two processes of prime-rl log `time/step` in separate rows. Such a row repeats one
            # of many metrics; the row of a restarted job repeats most of them.
            known = sum(origin == source for origin in pending.origins.values())
            if 2 * len(repeated) > known:
                self.rewritten += 1
                pending.forget(log, counter)
        for name, reading in values.items():
            if self._replaces(source, pending, step, name, reading):
                pending.values[name], pending.origins[name] = reading, source

    def _replaces(
        self, source: Origin, pending: _Pending, step: int, name: str, reading: Reading
    ) -> bool:
        """Whether a reading counts: no log has it yet, or its log was opened earlier."""
        before, origin = pending.values.get(name), pending.origins.get(name, source)
        if before is None or origin == source:
            return True
        log, other = source[0], origin[0]
        counts = self._ranks[log] < self._ranks[other]
        if log != other and readings_differ(before, reading):
            if counts:
                self._note_conflict(step, name, reading, before, (log, other))
            else:
                self._note_conflict(step, name, before, reading, (other, log))
        return counts

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
        return self._pop(complete) if complete else []

    def flush(self, *, ended: bool = True) -> list[StepRecord]:
        """Return the pending steps: the logs ended, or were silent for a while.

        Args:
            ended: whether the logs ended. If not, and steps were written in parts before, the
                latest step is held back: a rollout may take minutes longer than its evaluation.
        """
        steps = list(self._pending)
        if not ended and self._in_parts and steps:
            steps.remove(max(steps))
        self._order = [step for step in self._pending if step not in steps]
        return self._pop(steps)

    def _pop(self, steps: list[int]) -> list[StepRecord]:
        records = []
        for step in sorted(set(steps)):
            pending = self._pending.pop(step)
            self._heldout.add_means(pending.values)
            self._success.add_accuracy(pending.values)
            records.append(
                StepRecord(step, pending.values, time=pending.time, logged=pending.logged)
            )
            self._returned = max(self._returned, step)
            self._recent[step] = pending
        kept = MAX_LAG if len(self._passed) <= 1 else _MAX_REVISED
        while len(self._recent) > kept:
            self._recent.popitem(last=False)
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

"""From the rows of several growing logs to steps: each step once, when all of it is there."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import NotApplicable, Reading, merge, scalar

_TOLERANCE = 1e-3
"""Relative difference of two logs of one number: consoles print four digits."""

_MOST_TOLD = 20

MOST_LAG = 16
"""Steps that one of two writers of a file may be ahead of the other."""

_MOST_GIVEN_AGAIN = 2000
"""Steps that may be given once more where a job of several logs went back, each in its own time."""

_PRINTED = 1.001e-3
"""Two numbers this far apart print alike with three decimals, as the console of early verl has."""

MOST_PENDING = 100_000
"""Steps held back at most: a log whose steps never advance must not fill the memory."""


@dataclass
class _Pending:
    """A step that is not whole yet."""

    values: dict[str, Reading] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    """Which log each value came from."""
    time: float = 0.0

    def forget(self, log: str) -> None:
        """Drop what a log wrote."""
        for name in [name for name, origin in self.origins.items() if origin == log]:
            del self.values[name], self.origins[name]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two logs that give one number differently."""

    step: int
    metric: str
    kept: float
    other: float
    logs: tuple[str, str]
    """Whose number was kept, and whose was not."""


class StepAssembly:
    """Joins rows into steps.

    A log may write a step in several rows, and a directory may hold several logs of one run: a step
    is given once every log has gone past it, or when the caller says that there is no more.
    """

    def __init__(self) -> None:
        self._pending: dict[int, _Pending] = {}
        self._order: list[int] = []
        """The pending steps as a heap: a log of a million steps must not be searched at each."""
        self._border: dict[str, int] = {}
        """What each log has gone past; steps below the lowest are whole."""
        self._last: dict[str, int] = {}
        """The step of each log's latest row."""
        self._lag: dict[str, int] = {}
        """How far the slower of two writers of a log was behind."""
        self._recent: dict[int, _Pending] = {}
        """Steps given last, in case that a slower writer adds to them."""
        self._given = -1
        self.conflicts: list[Conflict] = []
        """The first ones; `conflict_count` counts them all."""
        self.conflict_count = 0
        self.rewinds: list[int] = []
        """To which steps logs went back, the latest of them."""
        self.rewind_count = 0
        self.rewritten = 0
        """Rows that a log wrote again under the same step."""
        self.of_several_rows: set[str] = set()
        """Logs with several rows for each step, whose readings are put together."""

    def last_of(self, log: str) -> int:
        """The step of a log's latest row; -1 before there is one."""
        return self._last.get(log, -1)

    @property
    def holds(self) -> bool:
        """Whether steps are held back."""
        return bool(self._pending)

    def open_log(self, log: str) -> None:
        """A log that steps have to wait for."""
        self._border.setdefault(log, -1)

    def close_log(self, log: str) -> None:
        """A log that no step waits for any more: it ended, or its file is gone."""
        self._border.pop(log, None)

    def add(
        self, log: str, step: int, values: Mapping[str, Reading], time: float = 0.0
    ) -> list[StepRecord]:
        """Take a row; what became whole before it.

        A row of an earlier step means that the log went back, as a resumed job does: the last
        writing counts. The steps before it are given at once where it is the only log; where there
        are several, what it wrote from there on is forgotten, and others may follow it. A row that
        adds to a step of just now is no such thing: two processes write one file, and the slower
        one is waited for from then on.
        """
        whole: list[StepRecord] = []
        if step < self._last.get(log, -1):
            if self._adds_to(log, step, values):
                self._wait_for_slower(log, step)
            else:
                whole = self._go_back(log, step)
        self._last[log] = max(step, self._last.get(log, -1)) if self._lag.get(log) else step
        self._border[log] = self._last[log] - self._lag.get(log, 0)
        if step <= self._given:
            return whole
        if step not in self._pending:
            self._pending[step] = _Pending()
            heapq.heappush(self._order, step)
        self._join(log, self._pending[step], step, values, time)
        return whole + self._ready()

    def _adds_to(self, log: str, step: int, values: Mapping[str, Reading]) -> bool:
        """Whether a row of a step behind the latest brings what that step lacks."""
        latest = self._last[log]
        known = (self._pending.get(each) or self._recent.get(each) for each in (step, latest))
        before = next(filter(None, known), None)
        if before is None or latest - step > MOST_LAG or not values:
            return False
        return 2 * sum(before.origins.get(name) == log for name in values) <= len(values)

    def _wait_for_slower(self, log: str, step: int) -> None:
        """Take back the steps from this one on, which were given too soon, to give them whole."""
        self._lag[log] = max(self._lag.get(log, 0), self._last[log] - step)
        self._take_back(step)

    def _take_back(self, step: int) -> None:
        """Hold the steps from this one on back once more, to be given again with more in them."""
        for late in [each for each in self._recent if each >= step]:
            self._pending[late] = self._recent.pop(late)
            heapq.heappush(self._order, late)
        self._given = min(self._given, step - 1)

    def _go_back(self, log: str, step: int) -> list[StepRecord]:
        self.rewind_count += 1
        self.rewinds = [*self.rewinds[-_MOST_TOLD:], step]
        alone = len(self._border) <= 1
        whole = self.flush() if alone else []
        if alone:
            self._recent.clear()
        self._take_back(step)
        for late in [each for each in self._pending if each >= step]:
            self._pending[late].forget(log)
        self._last.pop(log)
        self._border = {each: min(last, step - 1) for each, last in self._border.items()}
        return whole

    def _join(
        self, log: str, pending: _Pending, step: int, values: Mapping[str, Reading], time: float
    ) -> None:
        again = [name for name in values if pending.origins.get(name) == log]
        if again and log in self.of_several_rows:
            values = {
                **values,
                **{name: merge(pending.values[name], values[name]) for name in again},
            }
        elif 2 * len(again) > len(values):
            self.rewritten += 1
            pending.forget(log)
        for name, reading in values.items():
            before, origin = pending.values.get(name), pending.origins.get(name, log)
            if before is not None and origin != log:
                if readings_differ(before, reading):
                    self._note(step, name, before, reading, (origin, log))
                continue
            pending.values[name], pending.origins[name] = reading, log
        pending.time = max(pending.time, time)

    def _note(
        self, step: int, name: str, kept: Reading, other: Reading, logs: tuple[str, str]
    ) -> None:
        self.conflict_count += 1
        numbers = scalar(kept), scalar(other)
        if numbers[0] is not None and numbers[1] is not None and len(self.conflicts) < _MOST_TOLD:
            self.conflicts.append(Conflict(step, name, numbers[0], numbers[1], logs))

    def _ready(self) -> list[StepRecord]:
        border = min(self._border.values(), default=-1)
        if len(self._pending) > MOST_PENDING:
            return self.flush()
        ready = []
        while self._order and self._order[0] < border:
            ready.append(heapq.heappop(self._order))
        return self._give(ready)

    def flush(self) -> list[StepRecord]:
        """Everything that is held back: there is no more, or nobody wrote for a while."""
        self._order.clear()
        return self._give(list(self._pending))

    def _give(self, steps: list[int]) -> list[StepRecord]:
        records = []
        for step in sorted(set(steps)):
            pending = self._pending.pop(step)
            records.append(StepRecord(step, pending.values, time=pending.time))
            self._given = max(self._given, step)
            self._recent[step] = pending
        kept = MOST_LAG if len(self._border) <= 1 else _MOST_GIVEN_AGAIN
        while len(self._recent) > kept:
            del self._recent[next(iter(self._recent))]
        return records


def readings_differ(left: Reading, right: Reading) -> bool:
    """Whether two logs give one number differently, beyond the digits that they print."""
    if isinstance(left, NotApplicable) or isinstance(right, NotApplicable):
        return False
    one, other = scalar(left), scalar(right)
    if one is None or other is None:
        return False
    apart = abs(one - other)
    if apart <= _PRINTED / 2 and any(round(each, 3) == each for each in (one, other)):
        return False
    return not apart <= _TOLERANCE * max(abs(one), abs(other)) + 1e-9

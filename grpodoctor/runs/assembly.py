"""From the rows of several growing logs to steps: each step once, when all of it is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import NotApplicable, Reading, scalar

_TOLERANCE = 1e-3
"""Relative difference of two logs of one number: consoles print four digits."""

_MOST_TOLD = 20

MOST_LAG = 16
"""Steps that one of two writers of a file may be ahead of the other."""

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


class Assembly:
    """Joins rows into steps.

    A log may write a step in several rows, and a directory may hold several logs of one run: a step
    is given once every log has gone past it, or when the caller says that there is no more.
    """

    def __init__(self) -> None:
        self._pending: dict[int, _Pending] = {}
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
        self._join(log, self._pending.setdefault(step, _Pending()), step, values, time)
        return whole + self._ready()

    def _adds_to(self, log: str, step: int, values: Mapping[str, Reading]) -> bool:
        """Whether a row of a step behind the latest brings what that step lacks."""
        before = self._pending.get(step) or self._recent.get(step)
        near = self._last[log] - step <= MOST_LAG
        if before is None or not near or not values:
            return False
        return 2 * sum(before.origins.get(name) == log for name in values) <= len(values)

    def _wait_for_slower(self, log: str, step: int) -> None:
        """Take back the steps from this one on, which were given too soon, to give them whole."""
        self._lag[log] = max(self._lag.get(log, 0), self._last[log] - step)
        for late in [each for each in self._recent if each >= step]:
            self._pending[late] = self._recent.pop(late)
        self._given = min(self._given, step - 1)

    def _go_back(self, log: str, step: int) -> list[StepRecord]:
        self.rewind_count += 1
        self.rewinds = [*self.rewinds[-_MOST_TOLD:], step]
        whole = self.flush() if len(self._border) <= 1 else []
        for late in [each for each in self._pending if each >= step]:
            self._pending[late].forget(log)
        self._recent = {each: known for each, known in self._recent.items() if each < step}
        self._last.pop(log)
        self._border = {each: min(last, step - 1) for each, last in self._border.items()}
        self._given = min(self._given, step - 1)
        return whole

    def _join(
        self, log: str, pending: _Pending, step: int, values: Mapping[str, Reading], time: float
    ) -> None:
        again = [name for name in values if pending.origins.get(name) == log]
        if 2 * len(again) > len(values):
            self.rewritten += 1
            pending.forget(log)
        for name, reading in values.items():
            before, origin = pending.values.get(name), pending.origins.get(name, log)
            if before is not None and origin != log and _differ(before, reading):
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
        return self._give([step for step in self._pending if step < border])

    def flush(self) -> list[StepRecord]:
        """Everything that is held back: there is no more, or nobody wrote for a while."""
        return self._give(list(self._pending))

    def _give(self, steps: list[int]) -> list[StepRecord]:
        records = []
        for step in sorted(steps):
            pending = self._pending.pop(step)
            records.append(StepRecord(step, pending.values, time=pending.time))
            self._given = max(self._given, step)
            self._recent[step] = pending
        for old in sorted(self._recent)[: -MOST_LAG - 1]:
            del self._recent[old]
        return records


def _differ(left: Reading, right: Reading) -> bool:
    if isinstance(left, NotApplicable) or isinstance(right, NotApplicable):
        return False
    one, other = scalar(left), scalar(right)
    if one is None or other is None:
        return False
    return not abs(one - other) <= _TOLERANCE * max(abs(one), abs(other)) + 1e-9

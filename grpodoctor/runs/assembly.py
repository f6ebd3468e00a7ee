"""From the rows of several growing logs to steps: each step once, when all of it is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import NotApplicable, Reading, scalar

_TOLERANCE = 1e-3
"""Relative difference of two logs of one number: consoles print four digits."""

MOST_PENDING = 100_000
"""Steps held back at most: a log whose steps never advance must not fill the memory."""


@dataclass
class _Pending:
    """A step that is not whole yet."""

    values: dict[str, Reading] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    """Which log each value came from."""
    time: float = 0.0


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
        self._last: dict[str, int] = {}
        self._given = -1
        self.conflicts: list[Conflict] = []
        """The latest ones; `conflict_count` counts them all."""
        self.conflict_count = 0
        self.late = 0
        """Rows of steps that had been given already."""

    def open_log(self, log: str) -> None:
        """A log that steps have to wait for."""
        self._last.setdefault(log, -1)

    def close_log(self, log: str) -> None:
        """A log that no step waits for any more: it ended, or its file is gone."""
        self._last.pop(log, None)

    def add(
        self, log: str, step: int, values: Mapping[str, Reading], time: float = 0.0
    ) -> list[StepRecord]:
        """Take a row; what became whole before it.

        A row of an earlier step of the only log means that the run went back: the steps before it
        are given, and so are those that it writes again. Among several logs the last writing wins.
        """
        whole: list[StepRecord] = []
        went_back = step < self._last.get(log, -1)
        if went_back and len(self._last) <= 1:
            whole = self.flush()
            self._given = step - 1
        self._last[log] = step
        if step <= self._given:
            self.late += 1
            return whole
        self._join(log, self._pending.setdefault(step, _Pending()), step, values, time)
        return whole + self._ready()

    def _join(
        self, log: str, pending: _Pending, step: int, values: Mapping[str, Reading], time: float
    ) -> None:
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
        if numbers[0] is not None and numbers[1] is not None and len(self.conflicts) < 100:
            self.conflicts.append(Conflict(step, name, numbers[0], numbers[1], logs))

    def _ready(self) -> list[StepRecord]:
        border = min(self._last.values(), default=-1)
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
        return records


def _differ(left: Reading, right: Reading) -> bool:
    if isinstance(left, NotApplicable) or isinstance(right, NotApplicable):
        return False
    one, other = scalar(left), scalar(right)
    if one is None or other is None:
        return False
    return not abs(one - other) <= _TOLERANCE * max(abs(one), abs(other)) + 1e-9

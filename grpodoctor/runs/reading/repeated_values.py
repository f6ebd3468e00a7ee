"""Values that a log repeats until the next measurement, told from measurements that are equal.

Scripts that log at every step what they measure at every tenth write each number ten times. Taken
for ten measurements it makes every statistic look surer than it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from grpodoctor.vocabulary.values import Reading

_FEWEST_RUNS = 3
"""Whole runs of one length that are no accident: measured numbers repeat by chance only."""

_FEWEST_ROWS = 24
"""Rows before anything is decided: pairs of equal coarse numbers come in threes now and then."""

_LEARNT_FROM = 1000
"""Rows after which what has not been held is not looked at any more."""

_SCHEDULES = ("optimizer/learning_rate", "optimizer/entropy_coefficient")
"""Follow a plan, in steps if it says so: by themselves they tell nothing of measuring."""


@dataclass(slots=True)
class _Course:
    """How one metric has changed so far."""

    last: Reading
    run: int = 1
    """Rows since it last changed, that row included."""
    begun: int = 0
    """The row of its last change."""
    changes: int = 0
    period: int = 0
    """What the lengths of its whole runs are multiples of, the first run left out; 0 before there
    is one."""

    def take(self, reading: Reading, row: int) -> None:
        if reading == self.last:
            self.run += 1
            return
        if self.changes:
            self.period = math.gcd(self.period, self.run)
        self.changes += 1
        self.last, self.run, self.begun = reading, 1, row


class RepeatedValues:
    """Takes the repetitions out of one log."""

    def __init__(self) -> None:
        self._courses: dict[str, _Course] = {}
        self._rows = 0
        self._kept: dict[str, tuple[Reading, int]] = {}
        self._given = 0
        self.periods: dict[str, int] = {}
        """Metrics that are held, and for how many rows."""

    def learn(self, readings: Mapping[str, Reading]) -> None:
        """See how a row differs from the one before."""
        self._rows += 1
        if self._rows > _LEARNT_FROM:
            return
        for name, reading in readings.items():
            course = self._courses.get(name)
            if course is None:
                self._courses[name] = _Course(reading, begun=self._rows)
            else:
                course.take(reading, self._rows)
        if self._rows >= _FEWEST_ROWS and self._rows % 8 == 0:
            self._decide()

    def _decide(self) -> None:
        moving = {name: each for name, each in self._courses.items() if each.changes}
        held = {name: each for name, each in moving.items() if _is_held(each)}
        telling = [each for name, each in held.items() if name not in _SCHEDULES]
        self.periods = {name: each.period for name, each in held.items()} if telling else {}
        if not telling:
            return
        period, phase = telling[0].period, telling[0].begun % telling[0].period
        if all(each.begun % period == phase for each in moving.values()):
            # All that moves does so together: what stands still is not measured more often.
            self.periods = dict.fromkeys(self._courses, period)

    def thinned(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        """The readings of a row without those that only repeat a measurement."""
        self._given += 1
        if not self.periods:
            return dict(readings)
        return {name: reading for name, reading in readings.items() if self._is_new(name, reading)}

    def _is_new(self, name: str, reading: Reading) -> bool:
        period = self.periods.get(name)
        if period is None:
            return True
        before, row = self._kept.get(name, (None, 0))
        if reading == before and self._given - row < period:
            return False
        self._kept[name] = (reading, self._given)
        return True


def _is_held(course: _Course) -> bool:
    enough = course.changes > _FEWEST_RUNS and course.changes * course.period >= _FEWEST_ROWS
    return enough and course.period >= 2

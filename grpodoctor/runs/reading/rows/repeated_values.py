"""Removing values that a log repeats until the next measurement.

A script that measures a metric at every tenth step but logs it at every step writes each value ten
times. Counted as ten measurements, it would make every statistic look more certain than it is.

A metric of the training that stops changing for many such periods is stuck: it collapsed or is
saturated. No measurement lasts that long, so its rows count as readings again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from grpodoctor.vocabulary.metric_qualifiers import HELDOUT
from grpodoctor.vocabulary.values import Reading

_MIN_CHANGES = 3
"""Changes at multiples of one period that rule out chance: measured values rarely repeat."""

_MIN_ROWS = 24
"""Rows before the period is decided; short repeats of coarse values occur by chance."""

_STUCK_PERIODS = 1 + _MIN_CHANGES
"""Periods without any change after which a value is no longer taken for a repeat: the period itself
rests on so many changes."""

_MAX_LEARNED_ROWS = 1000
"""Rows after which metrics without repeats are no longer checked."""

_SCHEDULES = (
    "optimizer/learning_rate",
    "optimizer/entropy_coefficient",
    "optimizer/kl_coefficient",
)
"""Planned values may change in steps, so alone they do not show how often the log is measured."""


@dataclass(slots=True)
class _History:
    """How one metric has changed so far."""

    last: Reading
    run: int = 1
    """Rows since the last change, including its row."""
    changed_at: int = 0
    """The row of the last change."""
    changes: int = 0
    period: int = 0
    """Greatest common divisor of the lengths of all complete runs but the first; 0 if none."""

    def add(self, reading: Reading, row: int) -> None:
        if reading == self.last:
            self.run += 1
            return
        if self.changes:
            self.period = math.gcd(self.period, self.run)
        self.changes += 1
        self.last, self.run, self.changed_at = reading, 1, row

    @property
    def is_repeated(self) -> bool:
        enough = self.changes > _MIN_CHANGES and self.changes * self.period >= _MIN_ROWS
        return enough and self.period >= 2


class RepeatedValues:
    """Removes repeated values from the rows of one log."""

    def __init__(self) -> None:
        self._histories: dict[str, _History] = {}
        self._learned_rows = 0
        self._kept: dict[str, tuple[Reading, int]] = {}
        self._changed_at: dict[int, int] = {}
        """The latest row in which any metric of a period changed, by period."""
        self.rows = 0
        """Rows of the log so far."""
        self.new_rows = 0
        """Rows that count: those with a new measurement of any metric that is repeated."""
        self.periods: dict[str, int] = {}
        """Metrics with repeated values, and the number of rows per measurement."""
        self.stuck: set[str] = set()
        """Those of them that stopped changing, so that each of their rows counted."""

    def learn(self, readings: Mapping[str, Reading]) -> None:
        """Compare a row with the previous one."""
        self._learned_rows += 1
        if self._learned_rows > _MAX_LEARNED_ROWS:
            return
        for name, reading in readings.items():
            history = self._histories.get(name)
            if history is None:
                self._histories[name] = _History(reading, changed_at=self._learned_rows)
            else:
                history.add(reading, self._learned_rows)
        if self._learned_rows >= _MIN_ROWS and self._learned_rows % 8 == 0:
            self._decide()

    def _decide(self) -> None:
        changing = {name: each for name, each in self._histories.items() if each.changes}
        repeated = {name: each for name, each in changing.items() if each.is_repeated}
        measured = [each for name, each in repeated.items() if name not in _SCHEDULES]
        self.periods = {name: each.period for name, each in repeated.items()} if measured else {}
        if not measured:
            return
        period, phase = measured[0].period, measured[0].changed_at % measured[0].period
        if all(each.changed_at % period == phase for each in changing.values()):
            # All metrics change in the same rows, so constant ones are not measured more often.
            self.periods = dict.fromkeys(self._histories, period)

    def without_repeats(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        """Return the readings of a row except those that repeat a measurement."""
        self.rows += 1
        if not self.periods:
            self.new_rows += 1
            return dict(readings)
        self._note_changes(readings)
        new = {name: reading for name, reading in readings.items() if self._is_new(name, reading)}
        self.new_rows += not self.periods.keys().isdisjoint(new)
        return new

    def _note_changes(self, readings: Mapping[str, Reading]) -> None:
        for name, reading in readings.items():
            period = self.periods.get(name)
            if period is not None and reading != self._kept.get(name, (None, 0))[0]:
                self._changed_at[period] = self.rows

    def _is_new(self, name: str, reading: Reading) -> bool:
        period = self.periods.get(name)
        if period is None:
            return True
        before, row = self._kept.get(name, (None, 0))
        if reading == before and self.rows - row < period and not self._is_stuck(name, period):
            return False
        self._kept[name] = (reading, self.rows)
        return True

    def _is_stuck(self, name: str, period: int) -> bool:
        """Whether a metric and all others of its period have not changed for many periods.

        An evaluation stays carried forward: its best result may be the same for a long time.
        """
        unchanged = self.rows - self._changed_at.get(period, self.rows)
        if name.startswith(HELDOUT) or unchanged < _STUCK_PERIODS * period:
            return False
        self.stuck.add(name)
        return True

"""The column of the step, if a log has several that may hold it.

A name alone may mislead: `steps` is the step in one log and the length of an episode in another.
The values decide. A step rises from row to row, apart from restarts of the job. Where the parts of
a step have separate rows, as in `{"type": "rollout"}`, the step is the column that all of them
have: the rows of the updates may count updates as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from grpodoctor.runs.log_formats.base import EVALUATION, LogRow
from grpodoctor.runs.log_formats.decoding.json_rows import EPISODE, EPISODE_LENGTH, parse_step

DECIDING_ROWS = 50
"""Rows of a file that decide, at its beginning. Later rows change nothing, so that a log that is
read while it grows gives the same steps as the complete one."""

_MIN_ROWS = 8
"""Rows before a column is rejected."""

_MIN_FALLS = 3
"""Falls that are more than restarts of the job."""

_FALL_SHARE = 1 / 8
"""Share of the rows that fall, from which a column counts something else than steps."""


@dataclass(slots=True)
class _Course:
    """How the values of a column change from row to row."""

    last: int
    rows: int = 1
    rises: int = 0
    falls: int = 0

    def add(self, value: int) -> None:
        self.rows += 1
        self.rises += value > self.last
        self.falls += value < self.last
        self.last = value

    @property
    def always_rises(self) -> bool:
        return self.rises == self.rows - 1

    def is_rejected(self, name: str) -> bool:
        """Whether the column cannot be the step."""
        if name == EPISODE_LENGTH and not self.rises + self.falls:
            return True
        return self.falls >= max(_MIN_FALLS, _FALL_SHARE * self.rows)


class StepColumn:
    """Chooses the column of the step in one file."""

    def __init__(self) -> None:
        self._courses: dict[str, _Course] = {}
        self._parts: dict[str, dict[str, object]] = {}
        """The columns that all rows of a part have, by the part."""
        self._shared = ""
        """The column that the rows of all parts have; empty if their first columns are one."""
        self._rows = 0
        self.missing = ""
        """The first column of a part that the rows of another part lack."""
        self.preferred = ""
        """The column that its name suggests; empty if there is no other."""
        self.chosen: str | None = None
        """The column to read instead; empty to count the rows. None keeps the preferred one."""

    def learn(self, row: LogRow) -> bool:
        """Compare a row with the previous one; return whether another column is chosen now."""
        if not row.counts or self._rows >= DECIDING_ROWS:
            return False
        if row.counter:
            return self._learn_part(row)
        self._rows += 1
        self.preferred = self.preferred or next(iter(row.counts))
        for name, value in row.counts.items():
            step = parse_step(value)
            course = self._courses.get(name)
            if step is not None and course is not None:
                course.add(step)
            elif step is not None:
                self._courses[name] = _Course(step)
        before, self.chosen = self.chosen, self._shared or self._choice()
        return self.chosen != before

    def _learn_part(self, row: LogRow) -> bool:
        """Choose the first column that the rows of all parts have."""
        if row.counter == EVALUATION or "/" in row.counter:
            return False  # slime's `rollout/step` and `train/step` are separate counters
        self._rows += 1
        columns = self._parts.get(row.counter, row.counts)
        self._parts[row.counter] = {name: None for name in columns if name in row.counts}
        first, *others = self._parts.values()
        shared = [name for name in first if all(name in other for other in others)]
        firsts = (next(iter(part), "") for part in self._parts.values())
        missing = next((name for name in firsts if name not in shared), "")
        if self._rows < _MIN_ROWS or not shared or not missing:
            return False
        self.missing, self._shared = missing, shared[0]
        before, self.chosen = self.chosen, self._shared
        return self.chosen != before

    def _choice(self) -> str | None:
        preferred = self._courses.get(self.preferred)
        if preferred is None or self._rows < _MIN_ROWS or not preferred.is_rejected(self.preferred):
            return None
        others = (
            name
            for name, course in self._courses.items()
            if course.rows == self._rows and course.always_rises
        )
        is_length = preferred.falls > 0 or EPISODE in self._courses
        counts_rows = is_length and self.preferred == EPISODE_LENGTH
        return next(others, "" if counts_rows else None)

    def with_step(self, row: LogRow) -> LogRow:
        """The row with the step of the chosen column; of its preferred one if none is chosen."""
        name = next(iter(row.counts), "") if self.chosen is None else self.chosen
        step = parse_step(row.counts.get(name))
        is_kept = bool(row.counter) and not self._parts
        if is_kept or not row.counts or step == row.step or (step is None and name):
            return row
        return replace(row, step=step)

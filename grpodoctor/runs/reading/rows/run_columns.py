"""Logs with the rows of several runs, which a column such as `run` or `seed` tells apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpodoctor.errors import ConfigError, name_some
from grpodoctor.runs.log_formats.base import LogRow

_NAMES = frozenset(
    {"run", "run_id", "run_name", "run_idx", "experiment", "experiment_id", "experiment_name",
     "exp", "exp_id", "exp_name", "trial", "trial_id", "trial_name", "variant", "arm", "condition",
     "config_name", "job_id"}
)  # fmt: skip
"""Columns that name a run."""

_SEEDS = frozenset({"seed", "rng_seed", "random_seed", "train_seed"})
"""Columns that name a run if its rows follow each other. Many environments draw a seed for every
episode, which changes from row to row."""

_MIN_SHARED = 3
"""Steps that two runs share, at the start of both."""

_START = 2 * _MIN_SHARED
"""Steps of a run that make its start. A resumed job may have a new name and repeat a few steps, but
they are not the first ones of the job before it."""

MOST_RUNS = 128
"""Different values above which a column does not name runs."""

_COLUMNS = _NAMES | _SEEDS

RUN_NUMBER = "run_number"
"""Chooses one of several runs that follow each other in a log without such a column: 1, 2, ..."""


def cell_of(row: LogRow, column: str) -> str | None:
    """The text in a column of a row, a number without trailing zeros; None if it has none."""
    text = row.texts.get(column)
    if text is not None:
        return text.strip()
    number = row.values.get(column)
    return None if number is None else f"{number:.15g}"


def belongs_to(row: LogRow, where: Mapping[str, str]) -> bool:
    """Whether a row has these values in these columns. `RUN_NUMBER` is no column."""
    return all(
        cell_of(row, column) == value for column, value in where.items() if column != RUN_NUMBER
    )


def chosen_number(where: Mapping[str, str]) -> int | None:
    """The number of the run to read in a log with several; None to read all of them.

    Raises:
        ConfigError: if it is not a positive number.
    """
    text = where.get(RUN_NUMBER)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigError(
            f"invalid run number {text[:40]!r}", where="--where", remedy="count the runs from 1"
        )
    return int(text)


class WantedRows:
    """Which rows of a log belong to the run that the user chose, and why none does.

    Args:
        where: the chosen values by column.
    """

    def __init__(self, where: Mapping[str, str]) -> None:
        self._where = {column: value for column, value in where.items() if column != RUN_NUMBER}
        self._values: dict[str, dict[str, None]] = {column: {} for column in self._where}
        self._rows = self._wanted = 0

    def add(self, row: LogRow) -> bool:
        """Whether a row belongs to the chosen run."""
        self._rows += 1
        for column, values in self._values.items():
            value = cell_of(row, column)
            if value is not None and len(values) < MOST_RUNS:
                values[value] = None
        is_wanted = belongs_to(row, self._where)
        self._wanted += is_wanted
        return is_wanted

    def why_none(self) -> tuple[str, str] | None:
        """Why no row belongs to the chosen run, and what to do; None if some do, or no row is."""
        if self._wanted or not self._rows:
            return None
        missing = [column for column, values in self._values.items() if not values]
        if missing:
            return f"the log has no column {missing[0][:40]!r}", f"leave --where {missing[0]} out"
        known = (f"{column} is {name_some(list(each))}" for column, each in self._values.items())
        return "no row of the log has these values", f"choose another run: {'; '.join(known)}"


class _Column:
    """The runs that one column tells apart."""

    def __init__(self) -> None:
        self._starts: dict[str, list[int]] = {}
        """The first steps of each run."""
        self._current = ""
        self._changes = -1

    @property
    def names(self) -> Sequence[str]:
        """The runs so far, in the order of their first rows."""
        return tuple(self._starts)

    def add(self, name: str, step: int | None) -> None:
        start = self._starts.setdefault(name, [])
        if name != self._current:
            self._current = name
            self._changes += 1
        if len(start) < _START and (step is None or step not in start):
            start.append(len(start) if step is None else step)

    def has_several(self, *, in_blocks: bool) -> bool:
        """Whether two runs begin alike.

        Args:
            in_blocks: whether the rows of a run must follow each other.
        """
        if not 1 < len(self._starts) <= MOST_RUNS:
            return False
        if in_blocks and self._changes >= len(self._starts):
            return False
        current = set(self._starts[self._current])
        return any(
            len(current.intersection(start)) >= _MIN_SHARED
            for name, start in self._starts.items()
            if name != self._current
        )


class RunColumns:
    """Finds out whether a log has the rows of several runs."""

    def __init__(self) -> None:
        self._columns: dict[str, _Column] = {}

    def add(self, row: LogRow) -> str:
        """Add a row; return the column by which the log has several runs by now, or ''."""
        for column in self.names_in(row):
            runs = self._columns.setdefault(column, _Column())
            runs.add(cell_of(row, column) or "", row.step)
            if runs.has_several(in_blocks=column in _SEEDS):
                return column
        return ""

    def runs_of(self, column: str) -> Sequence[str]:
        """The values of a column so far, which name runs."""
        return self._columns[column].names

    @staticmethod
    def names_in(row: LogRow) -> Sequence[str]:
        """The columns of a row that may tell runs apart."""
        numbers, texts = row.values.keys(), row.texts.keys()
        if numbers.isdisjoint(_COLUMNS) and texts.isdisjoint(_COLUMNS):
            return ()  # nearly every row, and the sets below take longer
        return sorted((numbers & _COLUMNS) | (texts & _COLUMNS))

"""Tables that a script prints with one line per step below a line of names."""

from __future__ import annotations

import re

from grpodoctor.frameworks.registry import generic_framework
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.support.numbers import parse_number

_LONGEST = 2000
_MIN_COLUMNS = 3
"""Columns of a table of steps: the step and two measurements."""
_MOST_COLUMNS = 200
_LARGEST_STEP = 2**53
_MAY_HEAD = re.compile(r"step|iter|update|episode|round|epoch", re.IGNORECASE)
"""What a line of names has; a fast test, since most lines of a log are prose."""
_COUNTER = re.compile(
    r"(?:global|train(?:ing)?)?[ _]?(?:step|iter|iteration|update|episode|round|epoch)s?|ep",
    re.IGNORECASE,
)
_NAME = re.compile(r"[A-Za-z_][\w ./@()%-]{0,60}")
_BORDER = re.compile(r"[|║│┃]")
_GAP = re.compile(r"\t|\s{2,}")


class PrintedTable:
    """Rows of a table below the names of its columns, unless the log has rows of another kind.

    The responses that a log displays may contain tables too.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._counter = 0
        """The place of the step among the columns."""
        self._held: list[LogRow] = []
        self._is_discarded = False

    def add_line(self, text: str) -> None:
        """Take a line that is no row in another notation."""
        if self._is_discarded or len(text) > _LONGEST:
            return
        if not self._names or text.lstrip(" |║│┃\t")[:1].isalpha():
            self._read_names(text)
            return
        cells = _cells(text)
        if len(cells) != len(self._names):
            return
        numbers = [parse_number(cell.removesuffix("%")) for cell in cells]
        step = numbers[self._counter]
        if step is None or not 0 <= step < _LARGEST_STEP or step != int(step):
            return
        values = {
            f"line/{name}": number / (100 if cell.endswith("%") else 1)
            for name, number, cell in zip(self._names, numbers, cells, strict=True)
            if number is not None and not _COUNTER.fullmatch(name)
        }
        if values:
            self._held.append(LogRow(int(step), values))

    def take(self) -> list[LogRow]:
        """Return the rows since the last call."""
        rows, self._held = self._held, []
        return rows

    def discard(self) -> None:
        """Forget the table: the log has rows in another notation."""
        self._is_discarded, self._held = True, []

    def _read_names(self, text: str) -> None:
        """Take a line of names of columns, one of them a counter and one a known measurement."""
        if not _MAY_HEAD.search(text):
            return
        names = _cells(text)
        if not _MIN_COLUMNS <= len(names) <= _MOST_COLUMNS or not all(map(_NAME.fullmatch, names)):
            return
        counters = [place for place, name in enumerate(names) if _COUNTER.fullmatch(name)]
        keys = ["_".join(name.lower().replace("-", " ").split()) for name in names]
        if counters and any(map(generic_framework().knows, keys)):
            self._names, self._counter = keys, counters[0]


def _cells(text: str) -> list[str]:
    """The cells of a line: between borders, else between tabs or wide gaps."""
    if _BORDER.search(text):
        return [part.strip() for part in _BORDER.split(text.strip().strip("|║│┃"))]
    return [part.strip() for part in _GAP.split(text.strip())]

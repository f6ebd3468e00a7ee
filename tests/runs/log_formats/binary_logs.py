"""Reading of binary logs, shared by the tests of their formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from grpodoctor.runs.log_formats.base import LogReader, LogRow
from grpodoctor.support.files.growing_files import Damage


def rows_of(reader: LogReader) -> tuple[list[LogRow], list[Damage]]:
    """Read the present content of the file."""
    rows, damage, more = list[LogRow](), list[Damage](), True
    while more:
        chunk = reader.read()
        rows += chunk.records
        damage += chunk.damage
        more = chunk.more
    return rows, damage


def rows_around_cut(
    data: bytes, cut: int, path: Path, open_reader: Callable[[Path], LogReader]
) -> list[LogRow]:
    """Read a file that ends at `cut`, then its remainder; neither part may count as damaged."""
    path.write_bytes(data[:cut])
    reader = open_reader(path)
    first, damage = rows_of(reader)
    assert not damage
    with path.open("ab") as file:
        file.write(data[cut:])
    second, damage = rows_of(reader)
    assert not damage
    return first + second

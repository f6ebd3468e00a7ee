"""The responses that our own recorder wrote: one Parquet file per step and rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from grpodoctor.errors import RunError
from grpodoctor.runs.rollout_queries.figures import TOKEN_COLUMNS, Rollout, figures_schema
from grpodoctor.runs.rollouts import rollout_files

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 2048
"""Rows whose texts are in memory at a time."""


class RecordedFile(NamedTuple):
    """A rollouts file as it was at some time."""

    path: Path
    size: int
    changed_ns: int


class RecordedParts:
    """The rollouts files of a run directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def keys(self) -> list[RecordedFile]:
        """The files that exist, in order of step and rank."""
        return list(self._files())

    def _files(self) -> Iterator[RecordedFile]:
        for paths in rollout_files(self._directory).values():
            for path in paths:
                try:
                    status = path.stat()
                except OSError:
                    continue  # removed since the folder was read
                yield RecordedFile(path, status.st_size, status.st_mtime_ns)

    def figures(self, key: RecordedFile) -> pa.Table:
        """Read only the columns of figures.

        Raises:
            RunError: if the file cannot be read.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = figures_schema()
        try:
            table = pq.ParquetFile(key.path).read(columns=schema.names)
            return table.select(schema.names).cast(schema)
        except (OSError, KeyError, ValueError, pa.ArrowException) as error:
            raise RunError(
                f"a rollouts file cannot be read: {error}", where=str(key.path), remedy="delete it"
            ) from error

    def rows_with_text(self, key: RecordedFile, text: str) -> set[int]:
        """The rows whose prompt or response contains a text, in any case."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        found: set[int] = set()
        first = 0
        try:
            file = pq.ParquetFile(key.path)
            for batch in file.iter_batches(_BATCH_ROWS, columns=["prompt", "text"]):
                hits = [
                    pc.match_substring(batch.column(name), text, ignore_case=True).fill_null(False)
                    for name in ("prompt", "text")
                ]
                rows = pc.indices_nonzero(pc.or_(*hits)).to_pylist()
                found.update(first + row for row in rows)
                first += batch.num_rows
        except (OSError, KeyError, ValueError, pa.ArrowException):
            return found  # an unreadable file is reported where its figures are read
        return found

    def rollouts(
        self, key: RecordedFile, rows: Sequence[int], *, with_tokens: bool
    ) -> Mapping[int, Rollout]:
        """Some responses in full, by row."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        found: dict[int, Rollout] = {}
        try:
            file = pq.ParquetFile(key.path)
            columns = [
                name for name in file.schema_arrow.names if with_tokens or name not in TOKEN_COLUMNS
            ]
            for first, count, group in _row_groups(file):
                wanted = [row - first for row in rows if first <= row < first + count]
                if wanted:
                    table = file.read_row_group(group, columns=columns).take(wanted)
                    found |= zip([first + row for row in wanted], map(_rollout, table.to_pylist()),
                                 strict=True)  # fmt: skip
        except (OSError, KeyError, ValueError, pa.ArrowException):
            return found
        return found


def _row_groups(file: pa.ParquetFile) -> Iterator[tuple[int, int, int]]:
    """First row, number of rows and index of each row group."""
    first = 0
    for group in range(file.metadata.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        yield first, count, group
        first += count


def _rollout(row: Rollout) -> Rollout:
    components = row.get("components")
    return row | {"components": dict(components) if isinstance(components, list) else {}}

"""A history in Parquet, such as the history artifact of a W&B run: one row per logging call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpodoctor.frameworks.row_keys import MOST_KEYS, RowKeys
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.decoding.json_rows import RowDecoder
from grpodoctor.runs.log_formats.registry import LogFormat
from grpodoctor.support.files.growing_files import Chunk, Damage

if TYPE_CHECKING:
    import pyarrow as pa

_MAGIC = b"PAR1"
_BATCH_ROWS = 512
_MAX_ROWS = 5_000_000
"""Equal rows take no space in a file, but each takes time."""

_PART = re.compile(r"(?:part[-_]?)?\d+(?:[-_.].*)?\.parquet")
"""One of several files of a history."""


class ParquetHistory:
    """Reads a history that is written once.

    Args:
        path: the file.
        keys: columns of the step and the time.
    """

    name = "parquet"
    crash: None = None
    config: Mapping[str, Any] = {}

    def __init__(self, path: Path, keys: RowKeys) -> None:
        self.path, self._decoder = path, RowDecoder(keys)
        self.rewind()

    def rewind(self) -> None:
        """Start over at the first row."""
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._signature: tuple[int, int] | None = None

    def was_replaced(self) -> bool:
        """Whether the file was removed or written again."""
        return self._signature is not None and self._signature != self._current()

    def _current(self) -> tuple[int, int]:
        try:
            status = self.path.stat()
        except OSError:
            return (0, 0)
        return (status.st_ino, status.st_mtime_ns)

    def read(self) -> Chunk[LogRow]:
        """Read the rows of the next batch."""
        import pyarrow as pa

        chunk = Chunk[LogRow]()
        try:
            if self._batches is None:
                self._signature = self._current()
                self._batches = _batches(self.path)
            batch = next(self._batches, None)
            rows = [] if batch is None else batch.to_pylist()
        except (pa.ArrowException, OSError, ValueError) as error:
            self._batches = iter(())
            return Chunk(damage=[Damage(self.path.name, 0, " ".join(str(error).split())[:200])])
        for number, row in enumerate(rows, start=1):
            present = {key: value for key, value in row.items() if value is not None}
            try:
                chunk.records.append(self._decoder.row(present))
            except ValueError as error:
                chunk.damage.append(Damage(self.path.name, number, str(error)))
        chunk.more = batch is not None
        chunk.size = batch.nbytes if batch is not None else 0
        return chunk


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        if file.metadata.num_rows > _MAX_ROWS:
            raise ValueError(f"{file.metadata.num_rows} rows")
        yield from file.iter_batches(_BATCH_ROWS, columns=_columns(file.schema_arrow))


def _columns(schema: pa.Schema) -> list[str]:
    """The columns that can hold a metric, a step or the name of an event."""
    import pyarrow as pa

    kinds = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_struct,
    )
    usable = [field.name for field in schema if any(kind(field.type) for kind in kinds)]
    return usable[:MOST_KEYS]


def _claims(path: Path, head: bytes) -> bool:
    """Whether a Parquet file has a column of steps and numbers; dumps are recognized before."""
    if not head.startswith(_MAGIC) or path.suffix not in (".parquet", ""):
        return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError, ValueError):
        return False
    numbers = [
        field.name
        for field in schema
        if pa.types.is_floating(field.type) or pa.types.is_integer(field.type)
    ]
    has_step = not set(RowKeys().step).isdisjoint(numbers)
    has_lists = any(pa.types.is_list(field.type) for field in schema)
    return has_step and len(numbers) > 1 and (not has_lists or "_step" in numbers)


def _part_of(path: Path) -> tuple[str, str]:
    return (str(path.parent), path.name) if _PART.fullmatch(path.name) else (str(path), "")


FORMAT = LogFormat("parquet", 35, _claims, ParquetHistory, _part_of)

"""Dumps in Parquet, read by row groups, a few thousand tokens at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from grpodoctor.errors import RunError
from grpodoctor.frameworks.rollout_formats.base import Column, Notes, Piece
from grpodoctor.frameworks.rollout_formats.columns import floats, known
from grpodoctor.frameworks.rollout_formats.source import Source
from grpodoctor.measure.ragged import Ragged

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

MAGIC = b"PAR1"
MOST_VALUES = 64 * 1024 * 1024
"""Entries of a column of one row group; with more, it is refused: half a gigabyte of doubles."""
BATCH_VALUES = 2 * 1024 * 1024
"""Entries of a column that are held at once, on average."""
BATCH_BYTES = 64 * 1024 * 1024
"""Decoded bytes of a batch, on average."""
MOST_TEXT = 256 * 1024 * 1024
"""Characters of a batch; few bytes of a file can stand for very many."""
_MOST_ROWS = 4096
_DENSE_ROWS = 1_000_000
_LEAST_ROW_BYTES = 16
"""On disk, on average, of files of more rows than that: what a file repeats takes no place in it,
but each row takes some in memory."""


def cut_row_groups(path: Path | Source, size: int) -> list[tuple[int, int]]:
    """Runs of row groups of about so many bytes on disk.

    Raises:
        RunError: if it is no Parquet file, or stands for far more rows than it can hold.
    """
    source = Source.of(path)
    with _open(source) as file:
        rows, whole = file.metadata.num_rows, source.size()
        if rows > max(_DENSE_ROWS, whole / _LEAST_ROW_BYTES):
            raise RunError(
                f"{rows} rows in {whole} bytes",
                where=str(source.path)[:200],
                remedy="write it anew without repetitions if it is no bomb",
            )
        sizes = [
            sum(_compressed(file.metadata.row_group(index)))
            for index in range(file.metadata.num_row_groups)
        ]
    pieces, first, total = [], 0, 0
    for index, each in enumerate(sizes):
        total += each
        if total >= size:
            pieces.append((first, index + 1))
            first, total = index + 1, 0
    return [*pieces, (first, len(sizes))] if first < len(sizes) else pieces


def _compressed(group: Any) -> list[int]:
    return [group.column(index).total_compressed_size for index in range(group.num_columns)]


def column_names(path: Path) -> list[str]:
    """The columns of a file; none if it is no Parquet file."""
    import pyarrow as pa

    try:
        with _open(Source.of(path)) as file:
            return list(file.schema_arrow.names)
    except (RunError, OSError, pa.ArrowException, ValueError):
        return []


def _open(source: Source, as_dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # A name is opened by pyarrow itself, which is faster; a store's file is asked for ranges.
        place = source.open() if source.origin else source.path
        # A store is asked for all that is wanted at once; here that would only hold more memory.
        ahead = bool(source.origin)
        return pq.ParquetFile(place, read_dictionary=list(as_dictionaries), pre_buffer=ahead)
    except (pa.ArrowException, ValueError) as error:
        raise RunError(
            f"not a whole Parquet file: {str(error)[:100]}",
            where=str(source.path)[:200],
            remedy="if it is still being written, wait; else delete it",
        ) from error


def record_batches(
    piece: Piece, wanted: Sequence[str] | None, notes: Notes
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The rows of some row groups, a batch at a time, with the number of the batch's first row.

    Args:
        piece: a file and a range of its row groups.
        wanted: columns to read; None for all.
        notes: where a row group that cannot be used is counted.
    """
    import pyarrow as pa

    source = piece.source
    with _open(source) as file:
        names = [each for each in file.schema_arrow.names if wanted is None or each in wanted]
        row = sum(file.metadata.row_group(index).num_rows for index in range(piece.start))
        for index in range(piece.start, piece.stop):
            group = file.metadata.row_group(index)
            try:
                yield from _of_group(file, source, index, names, row)
            except (pa.ArrowException, RunError, ValueError) as error:
                notes.damaged_at(source.path.name, 0, f"row group {index}: {error}")
            row += group.num_rows


def _of_group(
    file: pq.ParquetFile, source: Source, index: int, names: Sequence[str], row: int
) -> Iterator[tuple[pa.RecordBatch, int]]:
    group = file.metadata.row_group(index)
    rows = max(group.num_rows, 1)
    sizes = _sizes(group, names)
    values = max((count for count, _ in sizes), default=0)
    if values > MOST_VALUES:
        raise ValueError(f"a column of {values} entries, more than {MOST_VALUES}")
    per_row = max(values / rows / BATCH_VALUES, sum(size for _, size in sizes) / rows / BATCH_BYTES)
    count = max(1, min(_MOST_ROWS, int(1 / per_row) if per_row else _MOST_ROWS))
    repeating = _repeating(group, names, count)
    with _open(source, repeating) if repeating else nullcontext(file) as chosen:
        for batch in chosen.iter_batches(
            batch_size=count, row_groups=[index], columns=list(names), use_threads=False
        ):
            yield batch, row
            row += batch.num_rows


def _sizes(group: Any, names: Sequence[str]) -> list[tuple[int, int]]:
    """Entries and decoded bytes of each wanted column of a row group, as its footer says."""
    columns = [group.column(index) for index in range(group.num_columns)]
    return [
        (column.num_values, column.total_uncompressed_size)
        for column in columns
        if column.path_in_schema.split(".")[0] in names
    ]


def _repeating(group: Any, names: Sequence[str], rows: int) -> list[str]:
    """Columns of which a batch could be far larger than the file: a text that stands there once.

    They are kept as dictionaries until it is known how much they say.
    """
    columns = [group.column(index) for index in range(group.num_columns)]
    return [
        column.path_in_schema
        for column in columns
        if column.path_in_schema in names
        and column.physical_type == "BYTE_ARRAY"
        and column.total_uncompressed_size * rows > MOST_TEXT
    ]


def doubles(batch: pa.RecordBatch, name: str) -> Column | None:
    """A column as doubles; None if it is not there or knows nothing."""
    import pyarrow as pa

    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        plain, nulls = _numbers(column)
        values = plain.astype(np.float64)
        values[~np.isfinite(values)] = np.inf
        if nulls is not None:
            values[nulls] = np.nan
        return known(values)
    return known(floats(column.to_pylist())) if _is_plain(column.type) else None


def _is_plain(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_null(kind))


def strings(batch: pa.RecordBatch, name: str) -> list[str] | None:
    """A column of texts; of lists and structures, their JSON-like form.

    Raises:
        ValueError: if the texts are more than memory should hold.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    if pa.types.is_dictionary(column.type):
        lengths = pc.binary_length(column.dictionary).take(column.indices)
        _refuse_endless(pc.sum(lengths).as_py(), batch)
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        _refuse_endless(pc.sum(pc.binary_length(column)).as_py(), batch)
        return [each or "" for each in column.to_pylist()]
    return [_said(each) for each in column.to_pylist()]


def _refuse_endless(size: int | None, batch: pa.RecordBatch) -> None:
    if (size or 0) > MOST_TEXT:
        raise ValueError(f"more than {MOST_TEXT} bytes of text in {batch.num_rows} rows")


def _said(value: object) -> str:
    from grpodoctor.frameworks.rollout_formats.columns import text_of

    return text_of(value) if isinstance(value, list | dict) else "" if value is None else str(value)


def lists(batch: pa.RecordBatch, name: str) -> Ragged | None:
    """A column of lists of numbers, as it lies; None if it is not there or empty."""
    import pyarrow as pa

    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return None
    kind = column.type.value_type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        return None
    lengths = np.diff(_numbers(column.offsets)[0]).astype(np.int64)
    if column.null_count:
        lengths[_nulls(column)] = 0
    values, nulls = _numbers(column.flatten())
    if nulls is not None:
        nothing = np.array(np.nan if values.dtype.kind == "f" else -1).astype(values.dtype)
        values = np.where(nulls, nothing, values)
    return Ragged.of_lengths(values, lengths)


def _numbers(array: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Numbers as they lie, and which of them are null; None if none is.

    pyarrow's own way would load pandas where that is installed: a quarter of a second in every
    process.
    """
    size, first = len(array), array.offset
    if not size:
        return np.empty(0, array.type.to_pandas_dtype()), None
    values = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())[first : first + size]
    return values, _nulls(array) if array.null_count else None


def _nulls(array: pa.Array) -> NDArray[np.bool_]:
    """Which entries of an array that has some are null."""
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
    found: NDArray[np.bool_] = bits[array.offset : array.offset + len(array)] == 0
    return found

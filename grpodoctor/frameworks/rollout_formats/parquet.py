"""Dumps in Parquet, read by row groups in batches of bounded size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpodoctor.errors import RunError
from grpodoctor.frameworks.rollout_formats.base import Column, DamageLog, FilePart
from grpodoctor.frameworks.rollout_formats.columns import floats, if_known, text_of
from grpodoctor.frameworks.rollout_formats.dump_file import DumpFile
from grpodoctor.frameworks.rollout_formats.parquet_footer import ColumnSize, column_sizes
from grpodoctor.measure.ragged import Ragged
from grpodoctor.support.arrays import np

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

MAGIC = b"PAR1"
MOST_VALUES = 64 * 1024 * 1024
"""Limit on the entries of a column in one row group: half a gigabyte of doubles."""
BATCH_VALUES = 2 * 1024 * 1024
"""Average number of entries of a column in a batch."""
BATCH_BYTES = 64 * 1024 * 1024
"""Average decoded size of a batch in bytes."""
MOST_TEXT = 256 * 1024 * 1024
"""Limit on the bytes of text in a batch: a small file can expand to very many."""
_MOST_ROWS = 4096
_DENSE_ROWS = 1_000_000
_LEAST_ROW_BYTES = 16
"""Least average size of a row in files with more than `_DENSE_ROWS` rows. Repeated values take no
space in a file, but every row takes memory."""


def cut_row_groups(path: Path | DumpFile, size: int) -> list[tuple[int, int]]:
    """Ranges of row groups with about a given number of bytes on disk.

    Raises:
        RunError: if it is not a Parquet file, or has implausibly many rows for its size.
    """
    source = DumpFile.of(path)
    with _open(source) as file:
        rows, file_bytes = file.metadata.num_rows, source.size()
        if rows > max(_DENSE_ROWS, file_bytes / _LEAST_ROW_BYTES):
            raise RunError(
                f"the file has {rows} rows in {file_bytes} bytes",
                where=str(source.path)[:200],
                remedy="if the file is genuine, rewrite it with fewer repeated values",
            )
    sizes = [sum(column.stored_bytes for column in group) for group in _column_sizes(source)]
    parts, first, total = [], 0, 0
    for index, group_size in enumerate(sizes):
        total += group_size
        if total >= size:
            parts.append((first, index + 1))
            first, total = index + 1, 0
    return [*parts, (first, len(sizes))] if first < len(sizes) else parts


def _column_sizes(source: DumpFile) -> list[list[ColumnSize]]:
    try:
        with source.open() as file:
            return column_sizes(file)
    except ValueError as error:
        raise RunError(
            str(error), where=str(source.path)[:200], remedy="delete the file, or write it again"
        ) from error


def column_names(path: Path) -> list[str]:
    """The column names of a file; empty if it is not a Parquet file."""
    import pyarrow as pa

    try:
        with _open(DumpFile.of(path)) as file:
            return list(file.schema_arrow.names)
    except (RunError, OSError, pa.ArrowException, ValueError):
        return []


def _open(source: DumpFile, as_dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # pyarrow opens local files faster itself; a remote file is read by ranges.
        place = source.open() if source.origin else source.path
        # Buffering saves requests to a remote store; for local files it only takes memory.
        ahead = bool(source.origin)
        file = pq.ParquetFile(place, read_dictionary=list(as_dictionaries), pre_buffer=ahead)
    except (pa.ArrowException, ValueError) as error:
        raise RunError(
            f"not a complete Parquet file: {str(error)[:100]}",
            where=str(source.path)[:200],
            remedy="wait if it is still being written, otherwise delete it",
        ) from error
    repeated = [name for name, count in Counter(file.schema_arrow.names).items() if count > 1]
    if repeated:  # neither is then the right one
        file.close()
        raise RunError(
            f"two columns have the name {repeated[0][:60]!r}",
            where=str(source.path)[:200],
            remedy="write each column once",
        )
    return file


def record_batches(
    part: FilePart, wanted: Sequence[str] | None, damage_log: DamageLog
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield the rows of a range of row groups in batches, with the index of each first row.

    Args:
        part: a file and a range of its row groups.
        wanted: columns to read; None for all.
        damage_log: counts row groups that are not usable.
    """
    import pyarrow as pa

    source = part.source
    with _open(source) as file:
        names = [name for name in file.schema_arrow.names if wanted is None or name in wanted]
        skipped = set(file.schema_arrow.names).difference(names)
        sizes = _column_sizes(source)
        row = sum(file.metadata.row_group(index).num_rows for index in range(part.start))
        for index in range(part.start, part.stop):
            group = file.metadata.row_group(index)
            try:
                columns = [each for each in sizes[index] if each.path[0] not in skipped]
                yield from _of_group(file, source, index, columns, names, row)
            except (pa.ArrowException, RunError, ValueError) as error:
                damage_log.damaged_at(source.path.name, 0, f"row group {index}: {error}")
            except OSError as error:
                if error.errno is not None:
                    raise
                # pyarrow's error for a footer that contradicts itself; it has no number
                damage_log.damaged_at(source.path.name, 0, f"row group {index}: {error}")
            row += group.num_rows


def _of_group(
    file: pq.ParquetFile,
    source: DumpFile,
    index: int,
    columns: Sequence[ColumnSize],
    names: Sequence[str],
    row: int,
) -> Iterator[tuple[pa.RecordBatch, int]]:
    rows = max(file.metadata.row_group(index).num_rows, 1)
    values = max((column.values for column in columns), default=0)
    if values > MOST_VALUES:
        raise ValueError(f"a column has {values} entries, more than {MOST_VALUES}")
    decoded = sum(column.decoded_bytes for column in columns)
    per_row = max(values / rows / BATCH_VALUES, decoded / rows / BATCH_BYTES)
    count = max(1, min(_MOST_ROWS, int(1 / per_row) if per_row else _MOST_ROWS))
    repeating = _repeating(columns, count)
    with _open(source, repeating) if repeating else nullcontext(file) as chosen:
        for batch in chosen.iter_batches(
            batch_size=count, row_groups=[index], columns=list(names), use_threads=False
        ):
            yield batch, row
            row += batch.num_rows


def _repeating(columns: Sequence[ColumnSize], rows: int) -> list[str]:
    """Columns whose batch could be far larger than the file, because it stores repeated texts once.

    They are read as dictionaries, so that their size is known before they are expanded.
    """
    return [
        column.path[0]
        for column in columns
        if len(column.path) == 1 and column.is_bytes and column.decoded_bytes * rows > MOST_TEXT
    ]


def doubles(batch: pa.RecordBatch, name: str) -> Column | None:
    """A column as doubles; None if it is missing or all values are unknown."""
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
        return if_known(values)
    return if_known(floats(column.to_pylist())) if _is_plain(column.type) else None


def _is_plain(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_null(kind))


def strings(batch: pa.RecordBatch, name: str) -> list[str] | None:
    """A column as texts; lists and structures give the texts that they contain.

    Raises:
        ValueError: if the texts exceed `MOST_TEXT`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    if pa.types.is_dictionary(column.type):
        lengths = pc.binary_length(column.dictionary).take(column.indices)
        _check_text_size(pc.sum(lengths).as_py(), batch)
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        _check_text_size(pc.sum(pc.binary_length(column)).as_py(), batch)
        return [text or "" for text in column.to_pylist()]
    return [_as_text(value) for value in column.to_pylist()]


def _check_text_size(size: int | None, batch: pa.RecordBatch) -> None:
    if (size or 0) > MOST_TEXT:
        raise ValueError(f"more than {MOST_TEXT} bytes of text in {batch.num_rows} rows")


def _as_text(value: object) -> str:
    return text_of(value) if isinstance(value, list | dict) else "" if value is None else str(value)


def lists(batch: pa.RecordBatch, name: str) -> Ragged | None:
    """A column of lists of numbers; None if it is missing or holds something else."""
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
        filler = np.array(np.nan if values.dtype.kind == "f" else -1).astype(values.dtype)
        values = np.where(nulls, filler, values)
    return Ragged.of_lengths(values, lengths)


def _numbers(array: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """The numbers of an array, without a copy, and which of them are null; None if none is.

    pyarrow's own conversion loads pandas if it is installed, which takes a quarter of a second in
    every process.
    """
    size, first = len(array), array.offset
    if not size:
        return np.empty(0, array.type.to_pandas_dtype()), None
    values = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())[first : first + size]
    if values.dtype.kind == "f" and np.isnan(values).any():
        # Bit errors make signaling NaNs, which raise floating-point errors when they are converted.
        values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)
    return values, _nulls(array) if array.null_count else None


def _nulls(array: pa.Array) -> NDArray[np.bool_]:
    """Whether each entry of an array with nulls is null, bool."""
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
    is_null: NDArray[np.bool_] = bits[array.offset : array.offset + len(array)] == 0
    return is_null

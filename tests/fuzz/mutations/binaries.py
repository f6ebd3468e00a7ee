"""Changes inside binary containers whose own checks stay valid: frames, tables, archives."""

from __future__ import annotations

import gzip
import io
import json
import random
import sqlite3
import struct
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.mutations import trees
from tests.fuzz.mutations.byte_damage import damaged
from tests.fuzz.mutations.texts import json_document
from tests.runs.log_formats.sound_logs import frame


def event_frames(rng: random.Random, sound: bytes) -> bytes:
    """TensorBoard frames with damaged messages and right checksums."""
    messages = []
    while len(sound) >= 16:
        (length,) = struct.unpack("<Q", sound[:8])
        messages.append(sound[12 : 12 + length])
        sound = sound[16 + length :]
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(messages))
        messages[at] = damaged(rng, messages[at])
    return b"".join(map(frame, messages))


def wandb_records(rng: random.Random, sound: bytes) -> bytes:
    """W&B records with damaged messages and right checksums."""
    head, rest, messages = sound[:7], sound[7:], []
    while len(rest) >= 7:
        _, length, _ = struct.unpack("<IHB", rest[:7])
        messages.append(rest[7 : 7 + length])
        rest = rest[7 + length :]
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(messages))
        messages[at] = damaged(rng, messages[at])[:30_000]
    kind = rng.choice((b"\x01", b"\x01", b"\x01", b"\x02", b"\x03", b"\x04"))
    return head + b"".join(
        struct.pack("<IHB", zlib.crc32(message, zlib.crc32(kind)), len(message), kind[0]) + message
        for message in messages
    )


def parquet_columns(rng: random.Random, sound: bytes) -> bytes:
    """A sound Parquet file with other columns: types, nulls, nesting, lengths."""
    table = pq.read_table(io.BytesIO(sound), partitioning=None)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(table.num_columns)
        name = table.column_names[at]
        column = rng.choice(_COLUMNS)(rng, table.column(at).combine_chunks())
        table = table.set_column(at, rng.choice((name, name, name, "step", "x" * 300)), column)
    if rng.random() < 0.2:
        table = table.slice(0, rng.randint(0, 2))
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=rng.choice((1, 7, 1000)))
    return sink.getvalue()


def _nulls(rng: random.Random, column: pa.Array) -> pa.Array:
    return pa.nulls(len(column), rng.choice((column.type, pa.null())))


def _some_nulls(rng: random.Random, column: pa.Array) -> pa.Array:
    values = column.to_pylist()
    return pa.array([None if rng.random() < 0.3 else each for each in values], column.type)


def _as_text(_: random.Random, column: pa.Array) -> pa.Array:
    return pa.array([str(each) for each in column.to_pylist()])


def _constant(rng: random.Random, column: pa.Array) -> pa.Array:
    value = rng.choice((0.0, -1, 2**62, float("nan"), float("-inf"), "x", b"\xff", True, [], [1.5],
                        ["a"], [[1]], {"a": 1}, [None], "\0" * 3, 1e300))  # fmt: skip
    return pa.array([value] * len(column))


def _halves(rng: random.Random, column: pa.Array) -> pa.Array:
    return pa.array(np.full(len(column), rng.choice((0.5, np.nan, 6e4)), np.float16))


def _dictionary(_: random.Random, column: pa.Array) -> pa.Array:
    try:
        return column.dictionary_encode()
    except pa.ArrowException:
        return pa.nulls(len(column))


def _shuffled(rng: random.Random, column: pa.Array) -> pa.Array:
    return column.take(pa.array(rng.choices(range(len(column)), k=len(column)), pa.int64()))


def _decimals(_: random.Random, column: pa.Array) -> pa.Array:
    from decimal import Decimal

    return pa.array([Decimal("1.50")] * len(column))


_COLUMNS = (_nulls, _some_nulls, _as_text, _constant, _constant, _halves, _dictionary, _shuffled,
            _decimals)  # fmt: skip


def database_rows(rng: random.Random, sound: bytes) -> bytes:
    """A sound SQLite file with other cells, and sometimes another schema."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.db"
        path.write_bytes(sound)
        base = sqlite3.connect(path)
        with base:
            tables = base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            table = rng.choice([name for (name,) in tables])
            columns = [row[1] for row in base.execute(f'PRAGMA table_info("{table}")')]
            for _ in range(rng.randint(1, 4)):
                _change_cell(rng, base, table, columns)
            if rng.random() < 0.1:
                base.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{columns[-1]}" TO other')
        base.close()
        return path.read_bytes()


def _change_cell(
    rng: random.Random, base: sqlite3.Connection, table: str, columns: list[str]
) -> None:
    column, row = rng.choice(columns), rng.randint(1, 20)
    query = f'SELECT "{column}" FROM "{table}" WHERE rowid = ?'  # noqa: S608 - a test's own names
    (old,) = base.execute(query, (row,)).fetchone() or (None,)
    new: Any = rng.choice((None, -1, 2**62, 1.5, b"\xff\0", "", "[", "x" * 9999))
    if isinstance(old, str) and old.startswith("{") and rng.random() < 0.7:
        new = json_document(rng, old.encode()).decode("utf-8", "replace")
    update = f'UPDATE OR IGNORE "{table}" SET "{column}" = ? WHERE rowid = ?'  # noqa: S608
    try:
        base.execute(update, (new, row))
    except sqlite3.Error:  # a number for the primary key that it does not take
        return


def npz_arrays(rng: random.Random, sound: bytes) -> bytes:
    """An archive of arrays with other types and shapes; none needs pickle."""
    with np.load(io.BytesIO(sound), allow_pickle=False) as stored:
        arrays = dict(stored)
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(sorted(arrays))
        array = np.atleast_1d(arrays.pop(name))
        other = rng.choice((
            array[:1], array[::-1], array.astype(np.float16), array.astype("U5"), np.array(0.5),
            np.full_like(array, rng.choice((0, 1, 100))), array.reshape(-1, 1),
            np.zeros((0, 3)), np.concatenate([array, array]), array.astype(np.int8),
        ))  # fmt: skip
        arrays[rng.choice((name, name, name, "other", f"{name}_x"))] = other
    sink = io.BytesIO()
    np.savez(sink, **arrays)
    return sink.getvalue()


def zip_members(rng: random.Random, sound: bytes) -> bytes:
    """An archive one of whose members is damaged; its checksum is right."""
    with zipfile.ZipFile(io.BytesIO(sound)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    name = rng.choice(sorted(members))
    members[name] = damaged(rng, members[name])
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for each, content in members.items():
            archive.writestr(each, content)
    return sink.getvalue()


def safetensors_header(rng: random.Random, sound: bytes) -> bytes:
    """A file of tensors whose header is valid JSON with changed values."""
    (length,) = struct.unpack("<Q", sound[:8])
    header = trees.changed(rng, json.loads(sound[8 : 8 + length]))
    text = json.dumps(header).encode("utf-8", "replace")
    return struct.pack("<Q", len(text)) + text + sound[8 + length :]


def gzip_lines(rng: random.Random, sound: bytes) -> bytes:
    """A packed log whose content is damaged, or which ends early."""
    packed = gzip.compress(damaged(rng, gzip.decompress(sound)), 1)
    return packed if rng.random() < 0.6 else packed[: rng.randint(0, len(packed))]

"""W&B's local log of a run, `run-<id>.wandb`, which W&B writes offline and online.

It is read without W&B: the file is a list of protobuf messages in LevelDB's framing, 32 KiB blocks
whose records may span several blocks. The messages with history and settings contain JSON text.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from grpodoctor.frameworks.row_keys import MOST_KEYS, RowKeys
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.decoding.json_rows import RowDecoder
from grpodoctor.runs.log_formats.decoding.protobuf import fields, text_of
from grpodoctor.runs.log_formats.decoding.record_tail import LONGEST_RECORD, RecordTail, SplitBlock
from grpodoctor.runs.log_formats.registry import LogFormat
from grpodoctor.support.files.growing_files import Chunk, Damage

_MAGIC = b":W&B"
_HEADER = 7
"""Bytes before the first record, and before each fragment of a record."""

_BLOCK = 32 * 1024
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
"""Kinds of fragments."""

_HISTORY, _CONFIG, _RUN = 2, 5, 17
"""Fields of a record's message."""

_VALUE = 16
"""Field of an item with its value as JSON."""

_TRAINER_STEPS = ("train/global_step", "trainer/global_step", "training/global_step")
"""Keys under which trainers log their step. The logger's own count is higher if a trainer logs
several times per step."""

_BEGAN = re.compile(r"run-(\d{8}_\d{6})-")


def with_trainer_steps(keys: RowKeys) -> RowKeys:
    """Prefer the steps that trainers log to a logger's own count."""
    return replace(keys, step=(*_TRAINER_STEPS, *keys.step))


class Wandb:
    """Reads a run's log, which may still grow.

    Args:
        path: the file.
        keys: keys of the step; without them, W&B's own count is used.
    """

    name = "wandb"
    crash: None = None

    def __init__(self, path: Path, keys: RowKeys) -> None:
        self.path, self._decoder = path, RowDecoder(with_trainer_steps(keys))
        self._tail = RecordTail(path, split_records)
        self.config: Mapping[str, Any] = {}

    def rewind(self) -> None:
        """Start over at the first record."""
        self._tail.rewind()
        self.config = {}

    def was_replaced(self) -> bool:
        """Whether the file was removed, replaced or truncated."""
        return self._tail.was_replaced()

    def read(self) -> Chunk[LogRow]:
        """Read the rows of the next block."""
        raw = self._tail.read()
        chunk = Chunk[LogRow](damage=raw.damage, size=raw.size, more=raw.more)
        for message in raw.records:
            try:
                chunk.records += self._rows(message)
            except ValueError as error:
                chunk.damage.append(Damage(self.path.name, 0, f"not a record: {error}"[:160]))
        return chunk

    def _rows(self, message: bytes) -> Iterator[LogRow]:
        for number, value in fields(message):
            if not isinstance(value, bytes):
                continue
            if number == _HISTORY:
                yield self._row(value)
            elif number == _CONFIG:
                self._add_settings(value)
            elif number == _RUN:
                for key, part in fields(value):
                    if key == 4 and isinstance(part, bytes):
                        self._add_settings(part)

    def _row(self, history: bytes) -> LogRow:
        data: dict[str, Any] = {}
        for number, value in fields(history):
            if number == 1 and isinstance(value, bytes):
                data.update(_item(value))
            elif number == 2 and isinstance(value, bytes):
                steps = [each for key, each in fields(value) if key == 1]
                data["_step"] = steps[-1] if steps else 0
            if len(data) > MOST_KEYS:
                raise ValueError(f"more than {MOST_KEYS} keys")
        return self._decoder.row(data)

    def _add_settings(self, config: bytes) -> None:
        for number, value in fields(config):
            if number == 1 and isinstance(value, bytes):
                settings = {key: each for key, each in _named(value) if key != "_wandb"}
                self.config = {**self.config, **settings}


def _item(message: bytes) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of an item; dictionaries are flattened, media is skipped."""
    for key, value in _named(message):
        if not isinstance(value, dict):
            yield key, value
        elif "_type" not in value:
            yield from ((f"{key}.{name}", each) for name, each in value.items())


def _named(message: bytes) -> Iterator[tuple[str, Any]]:
    names: list[str] = []
    text: int | bytes | None = None
    for number, value in fields(message):
        if number in (1, 2):
            names.append(text_of(value))
        elif number == _VALUE:
            text = value
    if isinstance(text, bytes) and names:
        try:
            yield ".".join(names), _loads(text)
        except orjson.JSONDecodeError as error:
            raise ValueError(f"not JSON: {error}") from None


def _loads(text: bytes) -> Any:
    """Parse a value; W&B writes NaN and infinities as Python does, which JSON lacks."""
    bare = text.strip(b'"')
    return float(bare) if bare in (b"NaN", b"Infinity", b"-Infinity") else orjson.loads(text)


def split_records(block: bytes, offset: int, size: int) -> SplitBlock:  # noqa: ARG001 - a splitter's signature
    """Find the complete records in a block; damaged ones are reported and skipped."""
    split = SplitBlock()
    record: list[bytes] | None = None
    for fragment in _fragments(block, offset):
        if fragment.error:
            split.errors.append((offset + fragment.at, fragment.error))
            record = None
        elif fragment.kind in (_FULL, _FIRST):
            record = [fragment.data]
        elif record is not None:
            record.append(fragment.data)
        if record is not None and fragment.kind in (_FULL, _LAST):
            split.records.append(b"".join(record))
            record = None
        if record is not None and sum(map(len, record)) > LONGEST_RECORD:
            split.errors.append(
                (offset + fragment.at, f"a record of more than {LONGEST_RECORD} bytes")
            )
            record = None
        if record is None:
            split.used = fragment.end
    return split


class _Fragment(NamedTuple):
    """The part of a record in one block of the file."""

    at: int
    end: int
    kind: int = 0
    data: bytes = b""
    error: str = ""
    """The damage, if there is any."""


def _fragments(block: bytes, offset: int) -> Iterator[_Fragment]:
    """Yield the complete fragments; damage skips the rest of its block."""
    at = 0
    if offset == 0 and block:
        at = min(_HEADER, len(block))
        yield _Fragment(0, at, error="" if block.startswith(_MAGIC) else "not a log of W&B")
    while at + _HEADER <= len(block):
        room = _BLOCK - (offset + at) % _BLOCK
        if room < _HEADER:
            at += room  # zero padding: no fragment fits
            continue
        checksum, length, kind = struct.unpack_from("<IHB", block, at)
        end = at + _HEADER + length
        if length + _HEADER > room or not _FULL <= kind <= _LAST:
            end = min(at + room, len(block))
            yield _Fragment(at, end, error="not the start of a record")
        elif end > len(block):
            return
        else:
            yield _checked(_Fragment(at, end, kind, block[at + _HEADER : end]), checksum)
        at = end


def _checked(fragment: _Fragment, checksum: int) -> _Fragment:
    if zlib.crc32(fragment.data, zlib.crc32(bytes([fragment.kind]))) == checksum:
        return fragment
    return fragment._replace(error="a record with a wrong checksum", kind=0)


def _claims(path: Path, head: bytes) -> bool:
    return head.startswith(_MAGIC) or (path.suffix == ".wandb" and not head)


def _part_of(path: Path) -> tuple[str, str]:
    """The runs in one directory are parts of one log: each launch of a job begins a new one."""
    began = _BEGAN.search(path.parent.name)
    return (str(path.parent.parent), began[1]) if began else (str(path), "")


FORMAT = LogFormat("wandb", 5, _claims, Wandb, _part_of)

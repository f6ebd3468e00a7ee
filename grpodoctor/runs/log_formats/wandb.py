"""W&B's own log of a run, written offline and online alike: `run-<id>.wandb`.

Read without W&B: the file is a list of protobuf messages in LevelDB's framing, blocks of 32 KiB
with records that may be torn over several. Of the messages those matter that carry history and
settings; everything is plain JSON text in there.
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
from grpodoctor.runs.log_formats.jsonl import row_of
from grpodoctor.runs.log_formats.protobuf import fields, text_of
from grpodoctor.runs.log_formats.record_tail import LONGEST_RECORD, Cut, RecordTail
from grpodoctor.runs.log_formats.registry import LogFormat
from grpodoctor.support.damage import Damage
from grpodoctor.support.growing_files import Chunk

_MAGIC = b":W&B"
_HEADER = 7
"""Bytes before the first record, and before each piece of one."""

_BLOCK = 32 * 1024
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
"""Which piece of a record it is."""

_HISTORY, _CONFIG, _RUN = 2, 5, 17
"""Fields of the message that every record is."""

_VALUE = 16
"""Field of an item that holds its value as JSON."""

_STEPS = ("train/global_step", "trainer/global_step", "training/global_step")
"""Where trainers log their step; the logger's own count runs faster if they log twice a step."""

_BEGAN = re.compile(r"run-(\d{8}_\d{6})-")


def of_any_logger(keys: RowKeys) -> RowKeys:
    """The same, with the steps first that trainers log beside a logger's own count."""
    return replace(keys, step=(*_STEPS, *keys.step))


class Wandb:
    """A run's log that may still grow.

    Args:
        path: the file.
        keys: where the steps stand in what was logged; else W&B's own count is taken.
    """

    name = "wandb"

    def __init__(self, path: Path, keys: RowKeys) -> None:
        self.path, self._keys = path, of_any_logger(keys)
        self._tail = RecordTail(path, cut_pieces)
        self.config: Mapping[str, Any] = {}

    def rewind(self) -> None:
        """Start over at the first record."""
        self._tail.rewind()
        self.config = {}

    def was_replaced(self) -> bool:
        """Whether the file was removed, replaced or cut short."""
        return self._tail.was_replaced()

    def read(self) -> Chunk[LogRow]:
        """The steps of the next block."""
        raw = self._tail.read()
        chunk = Chunk[LogRow](damage=raw.damage, size=raw.size, more=raw.more)
        for message in raw.records:
            try:
                chunk.records += self._rows(message)
            except ValueError as error:
                chunk.damage.append(Damage(self.path.name, 0, f"no record: {error}"[:160]))
        return chunk

    def _rows(self, message: bytes) -> Iterator[LogRow]:
        for number, value in fields(message):
            if not isinstance(value, bytes):
                continue
            if number == _HISTORY:
                yield self._row(value)
            elif number == _CONFIG:
                self._note_settings(value)
            elif number == _RUN:
                for key, part in fields(value):
                    if key == 4 and isinstance(part, bytes):
                        self._note_settings(part)

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
        return row_of(data, self._keys)

    def _note_settings(self, config: bytes) -> None:
        for number, value in fields(config):
            if number == 1 and isinstance(value, bytes):
                settings = {key: each for key, each in _named(value) if key != "_wandb"}
                self.config = {**self.config, **settings}


def _item(message: bytes) -> Iterator[tuple[str, Any]]:
    """The key and the value of an item; dictionaries are taken apart, media is left out."""
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
    """The value; W&B writes numbers that are none as Python does, which no standard allows."""
    bare = text.strip(b'"')
    return float(bare) if bare in (b"NaN", b"Infinity", b"-Infinity") else orjson.loads(text)


def cut_pieces(block: bytes, offset: int, size: int) -> Cut:  # noqa: ARG001 - a cutter's shape
    """The records that stand whole in a block; damaged ones are reported and left out."""
    cut = Cut()
    record: list[bytes] | None = None
    for piece in _pieces(block, offset):
        if piece.wrong:
            cut.wrong.append((offset + piece.at, piece.wrong))
            record = None
        elif piece.kind in (_FULL, _FIRST):
            record = [piece.data]
        elif record is not None:
            record.append(piece.data)
        if record is not None and piece.kind in (_FULL, _LAST):
            cut.records.append(b"".join(record))
            record = None
        if record is not None and sum(map(len, record)) > LONGEST_RECORD:
            cut.wrong.append((offset + piece.at, f"a record of more than {LONGEST_RECORD} bytes"))
            record = None
        if record is None:
            cut.used = piece.end
    return cut


class _Piece(NamedTuple):
    """A part of a record, as large as fits into one block of the file."""

    at: int
    end: int
    kind: int = 0
    data: bytes = b""
    wrong: str = ""
    """What is damaged."""


def _pieces(block: bytes, offset: int) -> Iterator[_Piece]:
    """The whole pieces in a part of the file; a damaged one takes the rest of its block along."""
    at = 0
    if offset == 0 and block:
        at = min(_HEADER, len(block))
        yield _Piece(0, at, wrong="" if block.startswith(_MAGIC) else "no log of W&B")
    while at + _HEADER <= len(block):
        room = _BLOCK - (offset + at) % _BLOCK
        if room < _HEADER:
            at += room  # filled with zeros: no piece fits
            continue
        checksum, length, kind = struct.unpack_from("<IHB", block, at)
        end = at + _HEADER + length
        if length + _HEADER > room or not _FULL <= kind <= _LAST:
            end = min(at + room, len(block))
            yield _Piece(at, end, wrong="not the beginning of a record")
        elif end > len(block):
            return
        else:
            yield _checked(_Piece(at, end, kind, block[at + _HEADER : end]), checksum)
        at = end


def _checked(piece: _Piece, checksum: int) -> _Piece:
    if zlib.crc32(piece.data, zlib.crc32(bytes([piece.kind]))) == checksum:
        return piece
    return piece._replace(wrong="a record that its checksum contradicts", kind=0)


def _claims(path: Path, head: bytes) -> bool:
    return head.startswith(_MAGIC) or (path.suffix == ".wandb" and not head)


def _part_of(path: Path) -> tuple[str, str]:
    """The runs in one directory follow each other: a job started again begins a new one."""
    began = _BEGAN.search(path.parent.name)
    return (str(path.parent.parent), began[1]) if began else (str(path), "")


FORMAT = LogFormat("wandb", 5, _claims, Wandb, _part_of)

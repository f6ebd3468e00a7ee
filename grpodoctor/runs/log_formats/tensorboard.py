"""TensorBoard's event files: scalars with their steps, and the settings that trainers add.

They are read without TensorBoard: an event file is a list of framed protobuf messages, and
five kinds of fields are used. `check` needs no further package for them, and a damaged or malicious
file cannot use more memory than one record.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import orjson

from grpodoctor.frameworks.row_keys import MOST_KEYS, RowKeys
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.decoding.crc32c import Mask, masked_crcs, valid_frames
from grpodoctor.runs.log_formats.decoding.protobuf import fields, text_of
from grpodoctor.runs.log_formats.decoding.record_tail import LONGEST_RECORD, RecordTail, SplitBlock
from grpodoctor.runs.log_formats.registry import LogFormat
from grpodoctor.support.arrays import np
from grpodoctor.support.files.growing_files import Chunk, Damage

_HEAD, _FOOT = 12, 4
"""Bytes before and after a message: its length with a checksum, and the message's checksum."""

_NOT_A_FRAME = "not the start of an event"

_MAX_CHECKED = 1024
"""Longer messages are not verified by their checksum; no scalar is longer."""

_SETTINGS = ("args", "model_config", "config", "hparams")
"""Names of texts with settings as JSON; transformers writes its arguments as `args`."""

_BEGAN = re.compile(r"tfevents\.(\d{1,20})")
_LAUNCH = re.compile(r"[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_")

_NUMBERS = {
    1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 9: "<i8", 10: "u1", 19: "<f2",
    22: "<u4", 23: "<u8",
}  # fmt: skip
"""numpy's types of the numbers in a tensor's bytes, by TensorFlow's type."""

_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
"""Fields of `Event` in TensorFlow's event.proto."""
_SUMMARY_VALUE = 1
"""The field of `Summary` in summary.proto; each of its entries is one tag."""
_TAG, _SIMPLE_VALUE, _TENSOR = 1, 2, 8
"""Fields of `Summary.Value`."""
_DTYPE, _SHAPE, _CONTENT, _STRINGS = 1, 2, 4, 8
"""Fields of `TensorProto` in tensor.proto; `_CONTENT` has the bytes of all numbers."""
_PACKED_NUMBERS = {5: "<f4", 6: "<f8"}
"""Fields of `TensorProto` with packed numbers, and their types."""
_PACKED_INTEGERS = (7, 10)
"""Fields of `TensorProto` with packed integers of variable length."""
_DIMENSION, _SIZE = 2, 1
"""Fields of `TensorShapeProto` and of its dimensions."""


@dataclass(slots=True)
class _Event:
    """The content of one message."""

    step: int = 0
    time: float = 0.0
    values: dict[str, float] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


class TensorBoard:
    """Reads an event file, which may still grow.

    A trainer writes each scalar of a step as a separate event. The events of a step are joined into
    a row; the last row is returned when a second read finds no more events.

    Args:
        path: the file.
    """

    name = "tensorboard"
    crash: None = None

    def __init__(self, path: Path, keys: RowKeys) -> None:
        self.path, self._keys = path, keys
        self._tail = RecordTail(path, split_frames)
        self.rewind()

    def rewind(self) -> None:
        """Start over at the first event."""
        self._tail.rewind()
        self._open: _Event | None = None
        self.config: Mapping[str, Any] = {}

    def was_replaced(self) -> bool:
        """Whether the file was removed, replaced or truncated."""
        return self._tail.was_replaced()

    def read(self) -> Chunk[LogRow]:
        """Read the rows of the next block."""
        raw = self._tail.read()
        chunk = Chunk[LogRow](damage=raw.damage, size=raw.size, more=raw.more)
        for message in raw.records:
            try:
                event = _event_of(message)
            except ValueError as error:
                chunk.damage.append(Damage(self.path.name, 0, f"not an event: {error}"))
            else:
                chunk.records += self._join(event)
        if raw.records:
            chunk.more |= self._open is not None
        elif self._open is not None:
            chunk.records.append(self._row(self._open))
            self._open = None
        return chunk

    def _join(self, event: _Event) -> list[LogRow]:
        """Add an event to the current step; return the previous one if another step begins."""
        self._add_settings(event.texts)
        if not event.values:
            return []
        last = self._open
        if last is None or last.step != event.step or len(last.values) >= MOST_KEYS:
            self._open = event
            return [] if last is None else [self._row(last)]
        last.values.update(event.values)
        last.time = max(last.time, event.time)
        return []

    def _row(self, event: _Event) -> LogRow:
        steps = (event.values[name] for name in self._keys.scalars if name in event.values)
        step = next((int(step) for step in steps if step >= 0 and step.is_integer()), event.step)
        return LogRow(step, event.values, event.time, event.texts)

    def _add_settings(self, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            if name in _SETTINGS:
                settings = _settings_in(text)
                nested = settings if name != "model_config" else {name: settings}
                self.config = {**self.config, **nested}


def _settings_in(text: str) -> dict[str, Any]:
    try:
        settings = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return settings if isinstance(settings, dict) else {}


def split_frames(block: bytes, offset: int, size: int) -> SplitBlock:
    """Find the complete messages in a block; damaged ones are reported and skipped."""
    scan = _scan(block, offset, size)
    if not _has_valid_lengths(block, scan):
        scan = _scan(block, offset, size, valid_frames(block))
    errors = [(offset + position, _NOT_A_FRAME) for position in scan.gaps]
    split = SplitBlock(used=scan.position, errors=errors)
    _add_messages(split, block, offset, scan.frames)
    return split


@dataclass(slots=True)
class _Scan:
    """The frames of a block."""

    position: int = 0
    """Where the scan continues."""
    frames: list[tuple[int, int]] = field(default_factory=list)
    """Starts and ends of the messages."""
    lengths: list[int] = field(default_factory=list)
    """Positions of the lengths that were used."""
    gaps: list[int] = field(default_factory=list)
    """Positions without a valid length."""


def _scan(block: bytes, offset: int, size: int, valid: Mask | None = None) -> _Scan:
    """Follow the lengths from frame to frame.

    Args:
        block: a part of the file.
        offset: its position in the file.
        size: the size of the file.
        valid: positions with a valid length; all lengths are trusted if None.
    """
    scan = _Scan()
    while scan.position + _HEAD <= len(block):
        if valid is not None and not valid[scan.position]:
            scan.gaps.append(scan.position)
            later = np.flatnonzero(valid[scan.position :])
            scan.position += int(later[0]) if len(later) else len(block) - _HEAD + 1 - scan.position
            continue
        (length,) = struct.unpack_from("<Q", block, scan.position)
        scan.lengths.append(scan.position)
        end = scan.position + _HEAD + length + _FOOT
        if offset + end > size or (length <= LONGEST_RECORD and end > len(block)):
            break
        if length <= LONGEST_RECORD:
            scan.frames.append((scan.position + _HEAD, end - _FOOT))
        scan.position = end
    return scan


def _has_valid_lengths(block: bytes, scan: _Scan) -> bool:
    crcs = masked_crcs([block[position : position + 8] for position in scan.lengths])
    stated = [struct.unpack_from("<I", block, position + 8)[0] for position in scan.lengths]
    return crcs == stated


def _add_messages(
    split: SplitBlock, block: bytes, offset: int, frames: list[tuple[int, int]]
) -> None:
    """Add the messages, except those with a wrong checksum."""
    checked = [block[start:end] for start, end in frames if end - start <= _MAX_CHECKED]
    crcs = iter(masked_crcs(checked))
    for start, end in frames:
        stated = struct.unpack_from("<I", block, end)[0]
        if end - start <= _MAX_CHECKED and next(crcs) != stated:
            split.errors.append((offset + start, "an event with a wrong checksum"))
        else:
            split.records.append(block[start:end])


def _event_of(message: bytes) -> _Event:
    event = _Event()
    for number, value in fields(message):
        if number == _WALL_TIME and isinstance(value, bytes) and len(value) == 8:
            event.time = float(struct.unpack("<d", value)[0])
        elif number == _STEP and isinstance(value, int) and value < 2**53:
            event.step = value
        elif number == _SUMMARY and isinstance(value, bytes):
            for key, entry in fields(value):
                if key == _SUMMARY_VALUE and isinstance(entry, bytes):
                    _take_value(entry, event)
    return event


def _take_value(message: bytes, event: _Event) -> None:
    """Add the number or the text of one tag to an event."""
    tag, number, tensor = "", None, b""
    for key, value in fields(message):
        if key == _TAG:
            tag = text_of(value)
        elif key == _SIMPLE_VALUE and isinstance(value, bytes) and len(value) == 4:
            number = float(struct.unpack("<f", value)[0])
        elif key == _TENSOR and isinstance(value, bytes):
            tensor = value
    content = number if number is not None else _content_of(tensor)
    if isinstance(content, float):
        event.values[tag] = content
    elif content:
        event.texts[tag.removesuffix("/text_summary")] = content


def _content_of(tensor: bytes) -> float | str | None:
    """Return the single number of a tensor, or its text; None for anything else."""
    dtype, sizes, numbers, text, content = 0, list[int](), list[float](), "", b""
    for key, value in fields(tensor):
        if key == _DTYPE and isinstance(value, int):
            dtype = value
        elif key == _STRINGS:
            text = text_of(value)
        elif not isinstance(value, bytes):
            continue
        elif key == _SHAPE:
            sizes = list(_sizes(value))
        elif key == _CONTENT:
            content = value
        else:
            numbers += _packed(key, value)
    if content and dtype in _NUMBERS:
        numbers = _numbers(content, _NUMBERS[dtype])
    if prod(sizes) == 1 and len(numbers) == 1:
        return numbers[0]
    return text or None


def _packed(key: int, content: bytes) -> list[float]:
    """The number of a field with packed numbers; empty for several, and for other fields."""
    if key in _PACKED_NUMBERS:
        return _numbers(content, _PACKED_NUMBERS[key])
    return [float(each) for each in _varints(content)] if key in _PACKED_INTEGERS else []


def _numbers(content: bytes, kind: str) -> list[float]:
    width = np.dtype(kind).itemsize
    if len(content) != width:
        return []
    return [float(np.frombuffer(content, dtype=kind)[0])]


def _varints(packed: bytes) -> Iterator[int]:
    """Yield the number of a packed list of integers with one entry; nothing for longer lists."""
    if 0 < len(packed) <= 10:
        try:
            values = list(fields(b"\x08" + packed))
        except ValueError:
            return
        for _, value in values:
            if isinstance(value, int):
                yield value - (1 << 64) if value >= 1 << 63 else value


def _sizes(shape: bytes) -> Iterator[int]:
    for key, dimension in fields(shape):
        if key == _DIMENSION and isinstance(dimension, bytes):
            sizes = [value for number, value in fields(dimension) if number == _SIZE]
            yield sizes[0] if sizes and isinstance(sizes[0], int) else 0


def _claims(path: Path, head: bytes) -> bool:
    named = ".tfevents." in path.name or path.name.startswith("events.out.")
    return named or (len(head) >= _HEAD and b"brain.Event:" in head[:64])


def _part_of(path: Path) -> tuple[str, str]:
    """The files of one directory are parts of one log, in the order of their start times.

    transformers creates a directory for each launch, named after its date and host.
    """
    directory = path.parent
    home = directory.parent if _LAUNCH.match(directory.name) else directory
    began = _BEGAN.search(path.name)
    return str(home), f"{began[1]:0>20}" if began else path.name


FORMAT = LogFormat("tensorboard", 5, _claims, TensorBoard, _part_of)

"""TensorBoard's event files: scalars, each with its step, and the settings that trainers add.

Read without TensorBoard: an event file is a list of framed protobuf messages, of which five kinds
of field matter. So `check` needs no more packages for it, and a damaged or hostile file can ask for
no more memory than a record may have.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from grpodoctor.frameworks.row_keys import MOST_KEYS, RowKeys
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.crc32c import Mask, masked_crcs, sound_frames
from grpodoctor.runs.log_formats.protobuf import fields, text_of
from grpodoctor.runs.log_formats.record_tail import LONGEST_RECORD, Cut, RecordTail
from grpodoctor.runs.log_formats.registry import LogFormat
from grpodoctor.support.damage import Damage
from grpodoctor.support.growing_files import Chunk

_HEAD, _FOOT = 12, 4
"""Bytes around a message: its length with a checksum, and its own checksum."""

_NO_BEGINNING = "not the beginning of an event"

_CHECKED = 1024
"""Bytes of a message whose checksum is looked at: no scalar has more."""

_SETTINGS = ("args", "model_config", "config", "hparams")
"""Texts that trainers write as JSON; transformers writes its arguments as `args`."""

_BEGAN = re.compile(r"tfevents\.(\d{1,20})")
_LAUNCH = re.compile(r"[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_")

_NUMBERS = {
    1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 9: "<i8", 10: "u1", 19: "<f2",
    22: "<u4", 23: "<u8",
}  # fmt: skip
"""TensorFlow's types of numbers, as they stand in a tensor's bytes."""

_LISTS = {5: "<f4", 6: "<f8"}
"""Fields of a tensor that list its numbers packed."""


@dataclass(slots=True)
class _Event:
    """What one message says."""

    step: int = 0
    time: float = 0.0
    values: dict[str, float] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


class TensorBoard:
    """An event file that may still grow.

    A trainer writes each scalar of a step as an event of its own; they are put together again, and
    the last step is held back until a second look finds nothing more of it.

    Args:
        path: the file.
    """

    name = "tensorboard"

    def __init__(self, path: Path, keys: RowKeys) -> None:  # noqa: ARG002 - events say their step
        self.path = path
        self._tail = RecordTail(path, cut_frames)
        self.rewind()

    def rewind(self) -> None:
        """Start over at the first event."""
        self._tail.rewind()
        self._open: _Event | None = None
        self.config: Mapping[str, Any] = {}

    def was_replaced(self) -> bool:
        """Whether the file was removed, replaced or cut short."""
        return self._tail.was_replaced()

    def read(self) -> Chunk[LogRow]:
        """The steps of the next block."""
        raw = self._tail.read()
        chunk = Chunk[LogRow](damage=raw.damage, size=raw.size, more=raw.more)
        for message in raw.records:
            try:
                event = _event_of(message)
            except ValueError as error:
                chunk.damage.append(Damage(self.path.name, 0, f"no event: {error}"))
            else:
                chunk.records += self._join(event)
        if raw.records:
            chunk.more |= self._open is not None
        elif self._open is not None:
            chunk.records.append(_row(self._open))
            self._open = None
        return chunk

    def _join(self, event: _Event) -> list[LogRow]:
        """Add an event to the step that is being read; the step before it, if that is over."""
        self._note_settings(event.texts)
        if not event.values:
            return []
        last = self._open
        if last is None or last.step != event.step or len(last.values) >= MOST_KEYS:
            self._open = event
            return [] if last is None else [_row(last)]
        last.values.update(event.values)
        last.time = max(last.time, event.time)
        return []

    def _note_settings(self, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            if name in _SETTINGS:
                settings = _settings_in(text)
                inside = settings if name != "model_config" else {name: settings}
                self.config = {**self.config, **inside}


def _row(event: _Event) -> LogRow:
    return LogRow(event.step, event.values, event.time, event.texts)


def _settings_in(text: str) -> dict[str, Any]:
    try:
        settings = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return settings if isinstance(settings, dict) else {}


def cut_frames(block: bytes, offset: int, size: int) -> Cut:
    """The messages that stand whole in a block; damaged ones are reported and left out."""
    walk = _walk(block, offset, size)
    if not _is_sound(block, walk):
        walk = _walk(block, offset, size, sound_frames(block))
    cut = Cut(used=walk.at, wrong=[(offset + at, _NO_BEGINNING) for at in walk.lost])
    return _checked(cut, block, offset, walk.frames)


@dataclass(slots=True)
class _Walk:
    """From frame to frame through a block."""

    at: int = 0
    """Where the next look begins."""
    frames: list[tuple[int, int]] = field(default_factory=list)
    """Where the messages begin and end."""
    heads: list[int] = field(default_factory=list)
    """Where the lengths stand that were believed."""
    lost: list[int] = field(default_factory=list)
    """Where no length stands although one should."""


def _walk(block: bytes, offset: int, size: int, sound: Mask | None = None) -> _Walk:
    """Follow the lengths; those that are not sound are passed over, if it is known which are."""
    walk = _Walk()
    while walk.at + _HEAD <= len(block):
        if sound is not None and not sound[walk.at]:
            walk.lost.append(walk.at)
            later = np.flatnonzero(sound[walk.at :])
            walk.at = walk.at + int(later[0]) if len(later) else len(block) - _HEAD + 1
            continue
        (length,) = struct.unpack_from("<Q", block, walk.at)
        walk.heads.append(walk.at)
        end = walk.at + _HEAD + length + _FOOT
        if offset + end > size or (length <= LONGEST_RECORD and end > len(block)):
            break
        if length <= LONGEST_RECORD:
            walk.frames.append((walk.at + _HEAD, end - _FOOT))
        walk.at = end
    return walk


def _is_sound(block: bytes, walk: _Walk) -> bool:
    found = masked_crcs([block[at : at + 8] for at in walk.heads])
    stated = (struct.unpack_from("<I", block, at + 8)[0] for at in walk.heads)
    return all(one == other for one, other in zip(found, stated, strict=True))


def _checked(cut: Cut, block: bytes, offset: int, frames: list[tuple[int, int]]) -> Cut:
    """The same with the messages, but for those that their checksums contradict."""
    crcs = masked_crcs([block[at:end] for at, end in frames if end - at <= _CHECKED])
    known = iter(crcs)
    for at, end in frames:
        stated = struct.unpack_from("<I", block, end)[0]
        if end - at <= _CHECKED and next(known) != stated:
            cut.wrong.append((offset + at, "an event that its checksum contradicts"))
        else:
            cut.records.append(block[at:end])
    return cut


def _event_of(message: bytes) -> _Event:
    event = _Event()
    for number, value in fields(message):
        if number == 1 and isinstance(value, bytes) and len(value) == 8:
            event.time = float(struct.unpack("<d", value)[0])
        elif number == 2 and isinstance(value, int) and value < 2**53:
            event.step = value
        elif number == 5 and isinstance(value, bytes):
            for key, each in fields(value):
                if key == 1 and isinstance(each, bytes):
                    _take_value(each, event)
    return event


def _take_value(message: bytes, event: _Event) -> None:
    tag, number, tensor = "", None, b""
    for key, value in fields(message):
        if key == 1:
            tag = text_of(value)
        elif key == 2 and isinstance(value, bytes) and len(value) == 4:
            number = float(struct.unpack("<f", value)[0])
        elif key == 8 and isinstance(value, bytes):
            tensor = value
    found = number if number is not None else _content_of(tensor)
    if isinstance(found, float):
        event.values[tag] = found
    elif found:
        event.texts[tag.removesuffix("/text_summary")] = found


def _content_of(tensor: bytes) -> float | str | None:
    """The only number of a tensor, or its text; None if it is something else."""
    kind, sizes, numbers, text = 0, [], list[float](), ""
    content = b""
    for key, value in fields(tensor):
        if key == 1 and isinstance(value, int):
            kind = value
        elif key == 2 and isinstance(value, bytes):
            sizes = list(_sizes(value))
        elif key == 4 and isinstance(value, bytes):
            content = value
        elif key == 8:
            text = text_of(value)
        elif key in _LISTS and isinstance(value, bytes):
            numbers += _numbers(value, _LISTS[key])
        elif key in (7, 10) and isinstance(value, bytes):
            numbers += [float(each) for each in _varints(value)]
    if content and kind in _NUMBERS:
        numbers = _numbers(content, _NUMBERS[kind])
    if prod(sizes) == 1 and len(numbers) == 1:
        return numbers[0]
    return text or None


def _numbers(content: bytes, kind: str) -> list[float]:
    width = np.dtype(kind).itemsize
    if len(content) != width:
        return []
    return [float(np.frombuffer(content, dtype=kind)[0])]


def _varints(packed: bytes) -> Iterator[int]:
    """The only number of a packed list of whole numbers; nothing of longer ones."""
    if 0 < len(packed) <= 10:
        try:
            found = list(fields(b"\x08" + packed))
        except ValueError:
            return
        for _, value in found:
            if isinstance(value, int):
                yield value - (1 << 64) if value >= 1 << 63 else value


def _sizes(shape: bytes) -> Iterator[int]:
    for key, dimension in fields(shape):
        if key == 2 and isinstance(dimension, bytes):
            sizes = [value for number, value in fields(dimension) if number == 1]
            yield sizes[0] if sizes and isinstance(sizes[0], int) else 0


def _claims(path: Path, head: bytes) -> bool:
    named = ".tfevents." in path.name or path.name.startswith("events.out.")
    return named or (len(head) >= _HEAD and b"brain.Event:" in head[:64])


def _part_of(path: Path) -> tuple[str, str]:
    """The files of one directory follow each other; so do those of the jobs of one trainer.

    transformers gives each launch a directory of its own, named by its date and host.
    """
    directory = path.parent
    home = directory.parent if _LAUNCH.match(directory.name) else directory
    began = _BEGAN.search(path.name)
    return str(home), f"{began[1]:0>20}" if began else path.name


FORMAT = LogFormat("tensorboard", 5, _claims, TensorBoard, _part_of)

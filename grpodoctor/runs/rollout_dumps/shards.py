"""Dividing dumps into shards."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from grpodoctor.errors import GrpodoctorError
from grpodoctor.frameworks.rollout_formats.base import DumpFormat, FilePart
from grpodoctor.frameworks.rollout_formats.dump_file import ENDLESS, DumpFile

SHARD_BYTES = 16 * 1024 * 1024
"""On disk; when parsed, only a few megabytes of a shard are in memory at a time."""
_NUMBERS = re.compile(r"(\d+)")


class Shard(NamedTuple):
    """The input of one call of `summarize_shard`: plain data that can be sent to any process."""

    format: str
    pieces: tuple[FilePart, ...]
    size: int = 0
    """Approximate size in bytes."""

    @property
    def name(self) -> str:
        """For messages."""
        first = self.pieces[0]
        part = f" from {first.start} to {first.stop}" if first.stop < ENDLESS else ""
        others = f" and {len(self.pieces) - 1} more" if len(self.pieces) > 1 else ""
        return f"{Path(first.path).name}{part}{others}"


class ShardPlan(NamedTuple):
    """All shards in order, and the files that could not be divided."""

    shards: list[Shard]
    failed: list[str]


def plan_shards(
    files: Sequence[tuple[DumpFormat, Path | DumpFile]], size: int = SHARD_BYTES
) -> ShardPlan:
    """Divide dumps into shards of about `size` bytes, ordered by step and name.

    Small files share a shard. The responses of a step may be in several shards.
    """
    pieces: list[tuple[str, FilePart, int]] = []
    failed = []
    for form, file in sorted(files, key=_order):
        source = DumpFile.of(file)
        try:
            file_size = source.size()
            cuts = form.cut(source, size) if file_size else []
        except (OSError, GrpodoctorError) as error:
            failed.append(f"{source.path.name}: {error}")
            continue
        piece_size = file_size // max(len(cuts), 1)
        pieces += [(form.name, piece_of(source, cut, form), piece_size) for cut in cuts]
    return ShardPlan(_bundled(pieces, size), failed)


def piece_of(source: DumpFile, cut: tuple[int, int], form: DumpFormat) -> FilePart:
    """Make the description of a part of a file."""
    step = form.step_of(source.path)
    return FilePart(str(source.path), *cut, step, source.origin, source.length)


def _order(file: tuple[DumpFormat, Path | DumpFile]) -> tuple[object, ...]:
    form, path = file[0], DumpFile.of(file[1]).path
    step = form.step_of(path)
    natural = [part.zfill(20) if part.isdigit() else part for part in _NUMBERS.split(str(path))]
    return (step is not None, step or 0, natural, form.name)


def _bundled(pieces: Sequence[tuple[str, FilePart, int]], limit: int) -> list[Shard]:
    shards: list[Shard] = []
    bundle: list[FilePart] = []
    name, total = "", 0
    for form, piece, size in pieces:
        if bundle and (form != name or total + size > limit):
            shards.append(Shard(name, tuple(bundle), total))
            bundle, total = [], 0
        bundle.append(piece)
        name, total = form, total + size
    return [*shards, Shard(name, tuple(bundle), total)] if bundle else shards

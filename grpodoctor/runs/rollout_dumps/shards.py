"""Cutting a dump into shards."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from grpodoctor.errors import GrpodoctorError
from grpodoctor.frameworks.rollout_formats.base import DumpFormat, FilePart
from grpodoctor.frameworks.rollout_formats.dump_file import ENDLESS, DumpFile

SHARD_BYTES = 16 * 1024 * 1024
"""On disk; parsed, a shard is held a few megabytes at a time."""
_NUMBERS = re.compile(r"(\d+)")


class Shard(NamedTuple):
    """What one call of `summarize_shard` reads: plain data, which any process can be sent."""

    format: str
    pieces: tuple[FilePart, ...]

    @property
    def name(self) -> str:
        """For a person."""
        first = self.pieces[0]
        part = f" from {first.start} to {first.stop}" if first.stop < ENDLESS else ""
        others = f" and {len(self.pieces) - 1} more" if len(self.pieces) > 1 else ""
        return f"{Path(first.path).name}{part}{others}"


class ShardPlan(NamedTuple):
    """All shards in order, and what could not be cut."""

    shards: list[Shard]
    refused: list[str]


def plan(files: Sequence[tuple[DumpFormat, Path | DumpFile]], size: int = SHARD_BYTES) -> ShardPlan:
    """Cut dumps into shards of about `size` bytes, by step and name.

    Small files share a shard; the responses of a step may be spread over several.
    """
    pieces: list[tuple[str, FilePart, int]] = []
    refused = []
    for form, given in sorted(files, key=_order):
        source = DumpFile.of(given)
        try:
            whole = source.size()
            cuts = form.cut(source, size) if whole else []
        except (OSError, GrpodoctorError) as error:
            refused.append(f"{source.path.name}: {error}")
            continue
        share = whole // max(len(cuts), 1)
        pieces += [(form.name, piece_of(source, cut, form), share) for cut in cuts]
    return ShardPlan(_bundled(pieces, size), refused)


def piece_of(source: DumpFile, cut: tuple[int, int], form: DumpFormat) -> FilePart:
    """A part of a file."""
    step = form.step_of(source.path)
    return FilePart(str(source.path), *cut, step, source.origin, source.length)


def _order(file: tuple[DumpFormat, Path | DumpFile]) -> tuple[object, ...]:
    form, path = file[0], DumpFile.of(file[1]).path
    step = form.step_of(path)
    natural = [part.zfill(20) if part.isdigit() else part for part in _NUMBERS.split(str(path))]
    return (step is not None, step or 0, natural, form.name)


def _bundled(pieces: Sequence[tuple[str, FilePart, int]], size: int) -> list[Shard]:
    shards: list[Shard] = []
    held: list[FilePart] = []
    name, total = "", 0
    for form, piece, share in pieces:
        if held and (form != name or total + share > size):
            shards.append(Shard(name, tuple(held)))
            held, total = [], 0
        held.append(piece)
        name, total = form, total + share
    return [*shards, Shard(name, tuple(held))] if held else shards

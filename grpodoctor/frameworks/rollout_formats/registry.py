"""The dump formats, and which of them a file has."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import grpodoctor.frameworks as folder
from grpodoctor.errors import InputError
from grpodoctor.frameworks.rollout_formats.base import DumpFormat
from grpodoctor.frameworks.rollout_formats.dump_file import DumpFile
from grpodoctor.support.discovery import modules_below
from grpodoctor.support.packed_files import plain_name

_PACKED = (".jsonl", ".ndjson", ".json")
"""Suffixes of dumps that are read from the beginning and may therefore be compressed."""
_SUFFIXES = (*_PACKED, ".parquet", ".pt", ".pkl")


@lru_cache(maxsize=1)
def all_dump_formats() -> tuple[DumpFormat, ...]:
    """Every format, the most specific first."""
    formats: list[DumpFormat] = [
        module.FORMAT for module in modules_below(folder, "rollout*") if hasattr(module, "FORMAT")
    ]
    return tuple(sorted(formats, key=lambda dump_format: (dump_format.rank, dump_format.name)))


def dump_format_named(name: str) -> DumpFormat:
    """The format with a name."""
    return next(each for each in all_dump_formats() if each.name == name)


def dump_format_of(path: Path) -> DumpFormat | None:
    """The dump format of a local file, compressed or not; None if it is not a rollout dump."""
    return format_of_file(DumpFile.of(path))


def may_be_dump(path: Path) -> bool:
    """Whether a file's name may be a dump's; no other files are opened."""
    plain = plain_name(path)
    wanted = _PACKED if plain != path else _SUFFIXES
    return plain.suffix in wanted and not path.name.startswith(".")


def format_of_file(source: DumpFile) -> DumpFormat | None:
    """The dump format of a file, local or remote; None if it is not a rollout dump.

    Raises:
        RunError: if a remote store refuses access.
    """
    if not may_be_dump(_named(source)):
        return None
    try:
        head = source.head()
    except (OSError, InputError):
        return None
    return next((each for each in all_dump_formats() if each.claims(source.path, head)), None)


def _named(source: DumpFile) -> Path:
    return source.path.with_name(Path(source.origin).name) if source.is_packed else source.path


def dumps_among(paths: Iterable[Path]) -> list[tuple[DumpFormat, Path]]:
    """The rollout dumps among files, without those that are skipped."""
    formats = ((dump_format_of(path), path) for path in paths)
    return [(each, path) for each, path in formats if each and not each.skip_reason(path)]

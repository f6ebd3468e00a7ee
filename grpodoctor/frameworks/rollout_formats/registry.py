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
from grpodoctor.support.files.packed_files import plain_name

_PACKED = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
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
    return next(dump_format for dump_format in all_dump_formats() if dump_format.name == name)


def dump_format_of(path: Path) -> DumpFormat | None:
    """The dump format of a local file, compressed or not; None if it is not a rollout dump."""
    return format_of_file(DumpFile.of(path))


def may_be_dump(path: Path) -> bool:
    """Whether a file's name may be a dump's; no other files are opened."""
    plain = plain_name(path)
    wanted = _PACKED if plain != path else _SUFFIXES
    return plain.suffix in wanted and not path.name.startswith(".")


def format_of_file(file: DumpFile) -> DumpFormat | None:
    """The dump format of a file, local or remote; None if it is not a rollout dump.

    Raises:
        RunError: if a remote store refuses access.
    """
    if not may_be_dump(_named(file)):
        return None
    try:
        head = file.head()
    except (OSError, InputError):
        return None
    return next(
        (dump_format for dump_format in all_dump_formats() if dump_format.claims(file.path, head)),
        None,
    )


def _named(file: DumpFile) -> Path:
    return file.path.with_name(Path(file.origin).name) if file.is_packed else file.path


def dumps_among(paths: Iterable[Path]) -> list[tuple[DumpFormat, Path]]:
    """The rollout dumps among files, without those that are skipped."""
    formats = ((dump_format_of(path), path) for path in paths)
    return [
        (dump_format, path)
        for dump_format, path in formats
        if dump_format and not dump_format.skip_reason(path)
    ]


def empty_dumps(paths: Iterable[Path], dumps: Iterable[tuple[DumpFormat, Path]]) -> list[Path]:
    """Files of 0 bytes that should be rollout dumps.

    Without dumps, all files with a dump's suffix; otherwise those next to a dump with its suffix,
    because other logs of a run may be empty.
    """
    known = {(path.parent, path.suffix) for _, path in dumps}
    return [
        path
        for path in paths
        if may_be_dump(path)
        and (not known or (path.parent, path.suffix) in known)
        and _is_empty(path)
    ]


def _is_empty(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size == 0
    except OSError:
        return False

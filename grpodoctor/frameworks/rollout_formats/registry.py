"""Which dump format a file has; each format's module says which files are its own."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import grpodoctor.frameworks as folder
from grpodoctor.errors import InputError
from grpodoctor.frameworks.rollout_formats.base import DumpFormat
from grpodoctor.frameworks.rollout_formats.source import Source
from grpodoctor.support.discovery import modules_below
from grpodoctor.support.packed_files import plain_name

_PACKED = (".jsonl", ".ndjson", ".json")
"""Of dumps that are read from their beginning, and so may be packed."""
_SUFFIXES = (*_PACKED, ".parquet", ".pt", ".pkl")


@lru_cache(maxsize=1)
def all_dump_formats() -> tuple[DumpFormat, ...]:
    """Every format, the most particular first."""
    found: list[DumpFormat] = [
        module.FORMAT for module in modules_below(folder, "rollout*") if hasattr(module, "FORMAT")
    ]
    return tuple(sorted(found, key=lambda each: (each.rank, each.name)))


def dump_format_named(name: str) -> DumpFormat:
    """The format of that name, which a shard carries."""
    return next(each for each in all_dump_formats() if each.name == name)


def dump_format_of(path: Path) -> DumpFormat | None:
    """The dump format of a file, packed or not; None if it is no rollout dump."""
    return format_of_source(Source.of(path))


def may_be_dump(path: Path) -> bool:
    """Whether a dump may have such a name: nothing else is opened to find out."""
    plain = plain_name(path)
    wanted = _PACKED if plain != path else _SUFFIXES
    return plain.suffix in wanted and not path.name.startswith(".")


def format_of_source(source: Source) -> DumpFormat | None:
    """The dump format of a file, wherever it lies; None if it is no rollout dump.

    Raises:
        RunError: if it lies in a store that refuses.
    """
    if not may_be_dump(_named(source)):
        return None
    try:
        head = source.head()
    except (OSError, InputError):
        return None
    return next((each for each in all_dump_formats() if each.claims(source.path, head)), None)


def _named(source: Source) -> Path:
    return source.path.with_name(Path(source.origin).name) if source.is_packed else source.path


def dumps_among(paths: Iterable[Path]) -> list[tuple[DumpFormat, Path]]:
    """The rollout dumps among files, but for those that are passed over."""
    found = ((dump_format_of(path), path) for path in paths)
    return [(form, path) for form, path in found if form and not form.passed_over(path)]

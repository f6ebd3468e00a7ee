"""Which dump format a file has; each format's module says which files are its own."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import grpodoctor.runs.dumps as folder
from grpodoctor.errors import InputError
from grpodoctor.runs.dumps.base import DumpFormat
from grpodoctor.runs.tail import open_regular

_LOOKED_AT = 64 * 1024
_SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet", ".pt", ".pkl")
"""Of dumps: nothing else is opened to find out."""


@lru_cache(maxsize=1)
def all_dump_formats() -> tuple[DumpFormat, ...]:
    """Every format, the most particular first."""
    modules = (
        importlib.import_module(f"{folder.__name__}.{module.name}")
        for module in pkgutil.iter_modules(folder.__path__)
    )
    found = [module.FORMAT for module in modules if hasattr(module, "FORMAT")]
    return tuple(sorted(found, key=lambda each: (each.rank, each.name)))


def dump_format_named(name: str) -> DumpFormat:
    """The format of that name, which a shard carries."""
    return next(each for each in all_dump_formats() if each.name == name)


def dump_format_of(path: Path) -> DumpFormat | None:
    """The dump format of a file; None if it is no rollout dump."""
    if path.suffix not in _SUFFIXES or path.name.startswith("."):
        return None
    try:
        with open_regular(path) as file:
            head = file.read(_LOOKED_AT)
    except (OSError, InputError):
        return None
    return next((each for each in all_dump_formats() if each.claims(path, head)), None)


def dumps_among(paths: Iterable[Path]) -> list[tuple[DumpFormat, Path]]:
    """The rollout dumps among files, but for those that are passed over."""
    found = ((dump_format_of(path), path) for path in paths)
    return [(form, path) for form, path in found if form and not form.passed_over(path)]

"""Modules found by their place in a folder, so that adding a file is enough to register it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def module_paths(package: str, folder: Path) -> dict[str, str]:
    """Dotted paths of all modules below a folder by their last name, without importing any.

    Args:
        package: dotted name of the package that the folder holds.
        folder: the package's folder; sub-folders are searched too.

    Raises:
        ValueError: if two modules have the same last name.
    """
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if parts[-1].startswith("_"):
            continue
        if parts[-1] in found:
            raise ValueError(f"two modules are named {parts[-1]!r} below {folder}")
        found[parts[-1]] = ".".join([package, *parts])
    return found


def modules_below(package: ModuleType, pattern: str = "*") -> Iterator[ModuleType]:
    """Import modules of a package and of its sub-packages, in the order of their paths.

    Args:
        package: where to look.
        pattern: glob of the modules' last names, for folders that hold modules of several kinds.
    """
    for root in package.__path__:
        folder = Path(root)
        for path in sorted(folder.rglob(f"{pattern}.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if not parts[-1].startswith("_"):
                yield importlib.import_module(".".join([package.__name__, *parts]))


def classes_below(package: ModuleType, base: type[T]) -> Iterator[type[T]]:
    """Concrete subclasses of `base` in all modules of a package and of its sub-packages.

    A class counts in the module that defines it, not where it is imported.
    """
    for module in modules_below(package):
        for member in vars(module).values():
            defined_here = inspect.isclass(member) and member.__module__ == module.__name__
            if defined_here and issubclass(member, base) and not inspect.isabstract(member):
                yield member

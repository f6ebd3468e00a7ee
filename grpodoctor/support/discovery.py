"""Module discovery by folder: adding a file is enough to register it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def module_paths(package: str, folder: Path) -> dict[str, str]:
    """Map the last names of all modules below a folder to their dotted paths; import none.

    Args:
        package: dotted name of the package in the folder.
        folder: folder of the package; sub-folders are searched too.

    Raises:
        ValueError: if two modules have the same last name.
    """
    paths: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if parts[-1].startswith("_"):
            continue
        if parts[-1] in paths:
            raise ValueError(f"two modules are named {parts[-1]!r} below {folder}")
        paths[parts[-1]] = ".".join([package, *parts])
    return paths


def modules_below(package: ModuleType, pattern: str = "*") -> Iterator[ModuleType]:
    """Import the modules of a package and of its sub-packages, in path order.

    Args:
        package: the package to search.
        pattern: glob for the last name of a module, for folders with several kinds of modules.
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

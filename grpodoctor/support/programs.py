"""Paths of the programs that run by path: engine programs and dashboard pages."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from grpodoctor.errors import InputError

_PACKAGE = Path(__file__).parents[1]


def program(folder: str, name: str) -> Path:
    """The path of a program, in a checkout and in an installed wheel.

    Args:
        folder: `probes` or `app`; next to the package in a checkout, inside it in a wheel.
        name: the file's path in the folder.

    Raises:
        InputError: if the installation lacks the file.
    """
    for parent in (_PACKAGE / "_programs" / folder, _PACKAGE.parent / folder):
        if (parent / name).is_file():
            return parent / name
    raise InputError(
        f"the program {folder}/{name} is not part of this installation",
        where=str(_PACKAGE),
        remedy="reinstall grpodoctor",
    )


def load_package(folder: str, name: str) -> ModuleType:
    """Import a package from the folder of the programs, under the given name.

    The folder is not added to `sys.path`, where its modules could shadow others.

    Args:
        folder: as for `program`.
        name: the package; it may import itself only relatively.

    Raises:
        InputError: if the installation lacks the package.
    """
    alias = f"grpodoctor_{folder}_{name}"
    if alias not in sys.modules:
        path = program(folder, f"{name}/__init__.py")
        spec = importlib.util.spec_from_file_location(
            alias, path, submodule_search_locations=[str(path.parent)]
        )
        if spec is None or spec.loader is None:
            raise InputError(f"{path} cannot be imported", remedy="reinstall grpodoctor")
        module = importlib.util.module_from_spec(spec)
        sys.modules[alias] = module
        spec.loader.exec_module(module)
    return sys.modules[alias]

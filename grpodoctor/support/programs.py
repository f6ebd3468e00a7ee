"""Paths of programs that are run by path: engine programs and dashboard pages."""

from __future__ import annotations

from pathlib import Path

from grpodoctor.errors import InputError

_PACKAGE = Path(__file__).parents[1]


def program(folder: str, name: str) -> Path:
    """Return the path of a program, in a checkout and in an installed wheel.

    Args:
        folder: `probes` or `app`; next to the package in a checkout, inside it in a wheel.
        name: file name of the program.

    Raises:
        InputError: if the installation does not contain it.
    """
    for parent in (_PACKAGE / "_programs" / folder, _PACKAGE.parent / folder):
        if (parent / name).is_file():
            return parent / name
    raise InputError(
        f"the program {folder}/{name} is not part of this installation",
        where=str(_PACKAGE),
        remedy="reinstall grpodoctor",
    )

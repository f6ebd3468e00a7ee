"""Where the programs are that are run by path: engine programs and the dashboard's pages."""

from __future__ import annotations

from pathlib import Path

from grpodoctor.errors import InputError

_PACKAGE = Path(__file__).parents[1]


def program(folder: str, name: str) -> Path:
    """The path of a program, in a checkout and in an installed wheel alike.

    Args:
        folder: `probes` or `app`; beside the package in a checkout, inside it in a wheel.
        name: the file's name in it.

    Raises:
        InputError: if the installation lacks it.
    """
    for place in (_PACKAGE / "_programs" / folder, _PACKAGE.parent / folder):
        if (place / name).is_file():
            return place / name
    raise InputError(
        f"the program {folder}/{name} is not part of this installation",
        where=str(_PACKAGE),
        remedy="install grpodoctor anew",
    )

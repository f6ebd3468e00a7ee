"""The files of a data set that is a folder, as `datasets` saves it or the Hub stores it."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import islice
from pathlib import Path

from grpodoctor.errors import DataError

_NO_DATA = frozenset({
    "dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json", "config.json",
})  # fmt: skip
_MOST_FILES = 10_000
_TRAIN = re.compile(r"(?<![a-z])train(?![a-z])", re.IGNORECASE)
_HELD_OUT = re.compile(r"(?<![a-z])(?:test|validation|valid|val|dev|eval)(?![a-z])", re.IGNORECASE)


def data_files(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """The files with rows below a folder, sorted by name.

    If the names tell the splits apart, those of the training split; else all but those of a test
    or validation split. The most frequent format counts if there are several.

    Args:
        folder: the folder.
        suffixes: the suffixes of the formats.

    Raises:
        DataError: if there is no such file.
    """
    below = sorted(islice(folder.rglob("*"), _MOST_FILES))  # a home folder has no end
    files = [file for file in below if _has_rows(file, suffixes)]
    names = {file: str(file.relative_to(folder)) for file in files}
    chosen = (
        [file for file in files if _TRAIN.search(names[file])]
        or [file for file in files if not _HELD_OUT.search(names[file])]
        or files
    )
    if not chosen:
        raise DataError(
            f"the folder has no file with rows ({', '.join(sorted(suffixes))})",
            where=str(folder),
            remedy="pass a file, or the folder of a data set",
        )
    kinds = [file.suffix.lower() for file in chosen]
    kind = max(dict.fromkeys(kinds), key=kinds.count)
    return [file for file in chosen if file.suffix.lower() == kind]


def _has_rows(file: Path, suffixes: Collection[str]) -> bool:
    return (
        file.suffix.lower() in suffixes
        and file.name not in _NO_DATA
        and not file.name.startswith((".", "cache-"))
        and file.is_file()
    )

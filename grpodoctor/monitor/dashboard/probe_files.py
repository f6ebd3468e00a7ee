"""The probe results among the files that the reader named on the command line."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from grpodoctor.support.files.regular_files import files_below

PROBE_FILE = "probe.json"
_MOST_FILES = 50
_MOST_DEPTH, _MOST_ENTRIES = 5, 5000


def probe_files(paths: Iterable[Path]) -> list[Path]:
    """The files `probe.json` below the paths, the newest first; only these may be opened."""
    found: dict[Path, float] = {}
    for path in paths:
        for file in islice(_below(path), _MOST_FILES):
            try:
                found[file] = file.stat().st_mtime
            except OSError:
                continue  # removed since the folder was read
    return sorted(found, key=lambda file: (-found[file], str(file)))[:_MOST_FILES]


def _below(path: Path) -> Iterable[Path]:
    if not path.is_dir():
        return [path] if path.name == PROBE_FILE and path.is_file() else []
    try:
        files = list(files_below(path, max_depth=_MOST_DEPTH, max_entries=_MOST_ENTRIES))
    except OSError:
        return []  # the folder has vanished
    return [file for file in files if file.name == PROBE_FILE]

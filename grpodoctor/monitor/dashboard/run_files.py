"""The files of a run: when they changed, and what distinguishes one state from the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from grpodoctor.runs.records import EVENTS, MANIFEST, STEPS
from grpodoctor.support.files.regular_files import files_below

MOST_FILES = 2000
"""Files whose state is compared; a dump may have millions, but then the log grows as well."""


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of a run's files: another state means that there is something to read."""

    newest: float
    """Unix time of the latest write; 0 if there are no files."""
    size: int
    """Bytes of all files."""
    files: int

    @property
    def exists(self) -> bool:
        """Whether the run has files."""
        return self.files > 0


def file_state(path: Path) -> FileState:
    """The state of a run's files; files that vanish meanwhile are left out."""
    newest, size, count = 0.0, 0, 0
    for file in _files_of(path):
        try:
            status = file.stat()
        except OSError:
            continue
        newest, size, count = max(newest, status.st_mtime), size + status.st_size, count + 1
    return FileState(newest, size, count)


def _files_of(path: Path) -> list[Path]:
    own = [path / name for name in (STEPS, EVENTS, MANIFEST)]
    if own[0].exists():
        return own
    try:
        return [path] if not path.is_dir() else list(islice(files_below(path), MOST_FILES))
    except OSError:
        return []


def names_of(paths: Iterable[Path]) -> dict[Path, str]:
    """A short name for each path: its last part, with the folders above it if others share it."""
    distinct = list(dict.fromkeys(paths))
    return {path: _shortest_name(path, [each for each in distinct if each != path])
            for path in distinct}  # fmt: skip


def _shortest_name(path: Path, others: Sequence[Path]) -> str:
    parts = path.parts[1:]
    for length in range(1, len(parts) + 1):
        ending = parts[-length:]
        if not any(other.parts[1:][-length:] == ending for other in others):
            return "/".join(ending)
    return str(path)

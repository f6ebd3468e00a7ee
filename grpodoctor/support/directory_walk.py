"""Listing the files of a directory tree within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def files_below(directory: Path, max_depth: int = 6, max_entries: int = 20_000) -> Iterator[Path]:
    """Files of a directory and its sub-directories, level by level, sorted by name in each.

    Links to directories are not followed.

    Args:
        directory: where to start.
        max_depth: levels of sub-directories to search.
        max_entries: directory entries to visit; a dump of single responses may have millions.
    """
    queue, visited = [(directory, 0)], 0
    while queue:
        current, depth = queue.pop(0)
        for entry in sorted(current.iterdir()):
            visited += 1
            if visited > max_entries:
                return
            if entry.is_dir() and not entry.is_symlink() and depth < max_depth:
                queue.append((entry, depth + 1))
            elif entry.is_file():
                yield entry

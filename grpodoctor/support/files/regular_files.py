"""Reading files whose paths come from outside: never a pipe or a device, never without a bound."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from grpodoctor.errors import RunError

MAX_SMALL_FILE = 64 * 1024 * 1024
"""Largest size in bytes of a file that is read as a whole: settings, templates, results."""


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; refuse files that could block or never end.

    Raises:
        RunError: if the path is a pipe or a device.
        OSError: if the file is missing, is a directory, or cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(fd, "rb")
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise RunError(
        f"{kind_of(mode)}, not a file",
        where=str(path)[:200],
        remedy="pass a file, or the directory of a run",
    )


def kind_of(mode: int) -> str:
    """What a path is that is neither a file nor a directory, such as "a pipe"."""
    names = ((stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"))
    return next((name for applies, name in names if applies(mode)), "a block device")


def read_regular(path: Path, limit: int = MAX_SMALL_FILE) -> bytes:
    """Read a whole file of bounded size.

    Args:
        path: a regular file.
        limit: bytes that the file may have.

    Raises:
        OSError: if the file is missing, no regular file, too large, or cannot be read. Its
            `strerror` is a reason for the user.
    """
    try:
        with open_regular(path) as file:
            content = file.read(limit + 1)
    except RunError as error:
        raise OSError(errno.EINVAL, error.what, str(path)) from None
    if len(content) > limit:
        raise OSError(errno.EINVAL, f"it has more than {limit >> 20} MiB", str(path))
    return content


def is_missing(error: OSError) -> bool:
    """Whether an error says that the file does not exist."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


def unreadable(path: Path, error: OSError, what: str = "run") -> RunError:
    """Make the error for a file or folder that exists but cannot be read."""
    return RunError(
        f"cannot read the {what}: {error.strerror or error}",
        where=str(path)[:200],
        remedy="check the path and its permissions",
    )


@contextmanager
def translated_os_errors(path: Path) -> Iterator[None]:
    """Turn system errors of the block into a RunError that names the file or folder.

    Args:
        path: named when the system error names no path.
    """
    try:
        yield
    except OSError as error:
        raise unreadable(Path(os.fsdecode(error.filename or path)), error) from error


MOST_ENTRIES = 20_000
"""Entries of a directory that are visited, its sub-directories included."""


def files_below(
    directory: Path,
    max_depth: int = 6,
    max_entries: int = MOST_ENTRIES,
    on_unreadable: Callable[[Path, OSError], None] | None = None,
    on_cut_off: Callable[[], None] = lambda: None,
) -> Iterator[Path]:
    """Files of a directory and its sub-directories, level by level, sorted by name in each.

    Links to directories are not followed.

    Args:
        directory: where to start.
        max_depth: levels of sub-directories to search.
        max_entries: directory entries to visit; a dump of single responses may have millions.
        on_unreadable: receives each sub-directory that cannot be listed and each entry that cannot
            be examined; they are left out.
        on_cut_off: called if there are more entries than that.

    Raises:
        OSError: if `directory` itself cannot be listed.
    """
    report = on_unreadable or (lambda *_: None)
    queue, visited = [(directory, 0)], 0
    while queue:
        current, depth = queue.pop(0)
        try:
            entries = sorted(current.iterdir())
        except OSError as error:
            if current == directory:
                raise
            report(current, error)
            continue
        for entry in entries:
            visited += 1
            if visited > max_entries:
                on_cut_off()
                return
            try:
                is_folder, is_file = _kind_of(entry)
            except OSError as error:  # the directory may be listed, but not entered
                report(entry, error)
                continue
            if is_folder and depth < max_depth:
                queue.append((entry, depth + 1))
            elif is_file:
                yield entry


def _kind_of(entry: Path) -> tuple[bool, bool]:
    """Whether an entry is a directory, and whether it is a file or a link to one."""
    is_folder = entry.is_dir() and not entry.is_symlink()
    return is_folder, entry.is_file()

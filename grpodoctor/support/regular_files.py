"""Reading files whose paths come from outside: never a pipe or a device, never without a bound."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from grpodoctor.errors import RunError


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; refuse everything that could block or never end.

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
        "not a regular file", where=str(path)[:200], remedy="pass the directory of a run"
    )


def is_missing(error: OSError) -> bool:
    """Whether an error says that the file does not exist."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR)


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

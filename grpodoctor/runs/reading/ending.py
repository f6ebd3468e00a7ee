"""The error with which the logs of a run end."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from grpodoctor.runs.crash import Crash
from grpodoctor.runs.log_formats.base import CONSOLE, LogReader

_STREAM = re.compile(r"(?:std)?(?:out|err(?:or)?)|log|txt", re.IGNORECASE)


def crash_of(readers: Sequence[LogReader], wrote_rows: Collection[Path]) -> Crash | None:
    """The error with which a run ended; None if there is none, or if it may be another run's.

    The printed log that has the steps shows how the run ended. Its errors may be in a second file
    of the same name: `job.out` and `job.err`. If no printed log has steps, because they are in a
    file of another format, all printed logs must end with an error: a single one may be left from
    an earlier attempt.

    Args:
        readers: the open logs, in the order in which they were written.
        wrote_rows: files from which rows of steps were read.
    """
    printed = [reader for reader in readers if reader.name == CONSOLE]
    main = [reader for reader in printed if reader.path in wrote_rows]
    if main:
        last = main[-1]
        same = [each for each in printed if _program(each.path) == _program(last.path)]
        return last.crash or next((each.crash for each in same if each.crash), None)
    crashes = [reader.crash for reader in printed]
    return crashes[-1] if crashes and all(crashes) else None


def _program(path: Path) -> tuple[Path, str]:
    """What the two files of one program's output share: folder and name without the stream."""
    parts = [part for part in re.split(r"[._-]", path.name) if not _STREAM.fullmatch(part)]
    return path.parent, ".".join(parts)

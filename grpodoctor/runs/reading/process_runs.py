"""The run that a process writes: found through the files that it and its children keep open."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from grpodoctor.errors import InputError
from grpodoctor.runs.reading.nearby_runs import has_steps, nearby_runs
from grpodoctor.runs.records import WRITER_LOCK, WRITER_PROCESS_LOCK
from grpodoctor.support.safe_text import printable

_PROC = Path("/proc")
_MOST_PROCESSES = 1000
_WRITING = os.O_WRONLY | os.O_RDWR


def runs_of_process(pid: int) -> list[Path]:
    """The runs that a process and its children write; the logs if none is of our own recorder.

    Args:
        pid: the process.

    Raises:
        InputError: if there is no such process, if its files cannot be read, or if it writes no
            run. The message then names the runs below its working directory.
    """
    if not _PROC.is_dir():
        raise InputError(
            "this system does not tell the files of a process", remedy="pass the run directory"
        )
    files = [
        file for process in _family(pid) for file in _open_files(process, is_main=process == pid)
    ]
    locks = {WRITER_LOCK, WRITER_PROCESS_LOCK}
    recorded = dict.fromkeys(file.parent for file in files if file.name in locks)
    if recorded:
        return list(recorded)
    logs = list(dict.fromkeys(file for file in files if file.name not in locks and has_steps(file)))
    if not logs:
        raise _nothing_found(pid)
    return logs


def _family(pid: int) -> list[int]:
    """The process and its descendants.

    Raises:
        InputError: if there is no such process.
    """
    if not (_PROC / str(pid)).is_dir():
        raise InputError("no such process", where=f"--pid {pid}", remedy="list them: ps aux")
    family = [pid]
    for process in family:
        family += [child for child in _children(process) if child not in family]
        if len(family) > _MOST_PROCESSES:
            break
    return family


def _children(pid: int) -> Iterator[int]:
    try:
        for task in (_PROC / str(pid) / "task").iterdir():
            yield from map(int, (task / "children").read_text().split())
    except OSError:
        return


def _open_files(pid: int, *, is_main: bool) -> Iterator[Path]:
    """The regular files that a process has open for writing.

    Raises:
        InputError: if this user may not look at the process that was named.
    """
    folder = _PROC / str(pid)
    try:
        numbers = [entry.name for entry in (folder / "fd").iterdir()]
    except PermissionError:
        if is_main:
            raise InputError(
                "the files of this process cannot be read: another user owns it",
                where=f"--pid {pid}",
                remedy="pass the run directory",
            ) from None
        return
    except OSError:
        return
    for number in numbers:
        try:
            path = (folder / "fd" / number).readlink()
            is_written = _flags(folder / "fdinfo" / number) & _WRITING
            if is_written and stat.S_ISREG(path.stat().st_mode):
                yield path
        except OSError:
            continue


def _flags(info: Path) -> int:
    """The flags with which a file was opened."""
    for line in info.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "flags":
            return int(value, 8)
    return 0


def _nothing_found(pid: int) -> InputError:
    """The error for a process without an open run."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        folder = (_PROC / str(pid) / "cwd").readlink()
        nearby = [str(run.path) for run in nearby_runs(folder)[:3]]
    except OSError:
        words, nearby = [], []
    name = f" ({printable(' '.join(words).strip())})" if words else ""
    remedy = "pass the run directory"
    if nearby:
        remedy += f"; below its working directory: {', '.join(map(printable, nearby))}"
    return InputError(
        f"this process{name} keeps no run or log open", where=f"--pid {pid}", remedy=remedy
    )

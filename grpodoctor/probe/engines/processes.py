"""Starting an engine program, watching it, and ending it with everything it started.

A program runs in its own process group: Ctrl-C reaches only the probe, which then ends the program.
The program's output goes straight into a log. While the log or the output folders grow the program
is alive, however long it takes; silence for the spec's timeout ends it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from grpodoctor.errors import EngineError
from grpodoctor.probe.contract import PROBE_PID
from grpodoctor.support.subprocesses import kill_group

MARK = "GRPODOCTOR_PROBE"
"""Environment variable of everything a probe starts; its value is the probe's folder. By it a probe
finds its processes, including those that left the process group, as torchrun's workers do, or that
survived a killed probe."""

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 10.0
"""Time between SIGTERM and SIGKILL."""
_MAX_LOG_BYTES = 512 << 20
"""A program that prints more is considered broken."""

ExitReason = Literal["ended", "waiting", "silent", "out_of_time", "flooded"]


@dataclass(frozen=True, slots=True)
class Limits:
    """When a program's request is done or given up, and where the program shows signs of life."""

    outputs: tuple[Path, ...]
    """Folders that it writes shards to."""
    silence: float
    """Seconds without any sign of life after which it is ended."""
    deadline: float
    """On the monotonic clock; infinite if there is none."""
    is_waiting: Callable[[], bool]
    """Whether the request is done and the program waits for the next one."""


@dataclass(frozen=True, slots=True)
class ProgramExit:
    """How a program's request ended."""

    reason: ExitReason
    code: int
    """The exit code; minus the signal number if a signal ended it. 0 if it is waiting."""

    def clause(self, timeout: float) -> str:
        """The end as a clause of a sentence about the engine."""
        if self.reason == "silent":
            return f"gave no sign of life for {timeout:g} s and was ended"
        if self.reason == "flooded":
            return f"printed more than {_MAX_LOG_BYTES >> 20} MiB and was ended"
        if self.reason == "out_of_time":
            return "was ended when the time budget was spent"
        if self.code < 0:
            return f"was killed by {_signal_name(-self.code)}"
        return f"ended with exit code {self.code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Program:
    """A running program with everything it started.

    Args:
        command: the program and its arguments.
        log: receives the program's output.
        mark: the value of `MARK`.
        holds_input: whether its standard input is a pipe that ends with this process. A launcher
            may close the input at once, which the program would take for the probe's end.

    Raises:
        EngineError: if the program cannot be started.
    """

    def __init__(
        self, command: tuple[str, ...], log: Path, mark: str, *, holds_input: bool = True
    ) -> None:
        self.log, self.mark = log, mark
        log.parent.mkdir(parents=True, exist_ok=True)
        source = subprocess.PIPE if holds_input else subprocess.DEVNULL
        self._process = _start(command, log, mark, source)

    @property
    def is_running(self) -> bool:
        """Whether the program has not ended."""
        return self._process.poll() is None

    def wait(self, limits: Limits, watch: Callable[[], None] = lambda: None) -> ProgramExit:
        """Wait until a request is done; unless the program waits for the next one, it is ended.

        Args:
            limits: of the request.
            watch: called several times a second; an exception from it ends the program.
        """
        reason: ExitReason | None = None
        try:
            reason = _wait(self._process, self.log, limits, watch)
        finally:
            if reason != "waiting":
                self.end()
        return ProgramExit(reason, 0 if reason == "waiting" else self._process.returncode)

    def end(self, grace: float = 0.0) -> None:
        """End the program and the programs that it started.

        Args:
            grace: seconds in which it may end by itself.
        """
        # An interrupt may arrive at any point of this, and more than once.
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
            _end(self._process)
        finally:
            if self._process.stdin is not None:
                self._process.stdin.close()
            end_marked(self.mark)


def _start(command: tuple[str, ...], log: Path, mark: str, source: int) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        try:
            return subprocess.Popen(  # noqa: S603 - the user's own engine
                command,
                stdin=source,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {MARK: mark, PROBE_PID: str(os.getpid()), "PYTHONUNBUFFERED": "1"},
                process_group=0,
            )
        except OSError as error:
            raise EngineError(
                f"the engine cannot be started: {error.strerror}", where=command[0]
            ) from error


def _wait(
    process: subprocess.Popen[bytes], log: Path, limits: Limits, watch: Callable[[], None]
) -> ExitReason:
    signs, last_change = _signs_of_life(log, limits), time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)
            return "ended"
        watch()
        if limits.is_waiting():
            return "waiting"
        now, current = time.monotonic(), _signs_of_life(log, limits)
        if current != signs:
            signs, last_change = current, now
        log_bytes, _ = current
        if log_bytes > _MAX_LOG_BYTES:
            return "flooded"
        if now > limits.deadline:
            return "out_of_time"
        if now - last_change > limits.silence:
            return "silent"


def _signs_of_life(log: Path, limits: Limits) -> tuple[int, int]:
    """The size of the log and the number of output files, which grow while a program is alive."""
    size = log.stat().st_size
    files = sum(1 for folder in limits.outputs if folder.is_dir() for _ in os.scandir(folder))
    return size, files


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program and its process group, first with SIGTERM."""
    try:
        kill_group(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
    finally:  # also members of the group that outlived the program
        kill_group(process)
        process.wait()


def end_marked(mark: str) -> int:
    """Kill all processes with a mark, wherever they went; returns how many there were.

    Without /proc it finds none.
    """
    killed = _kill(marked_processes(mark))
    deadline = time.monotonic() + _GRACE_SECONDS
    while any(map(_is_alive, killed)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        killed |= _kill(marked_processes(mark))  # including processes started meanwhile
    return len(killed)


def _kill(pids: Iterable[int]) -> set[int]:
    killed = set(pids)
    for pid in killed:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return killed


def _is_alive(pid: int) -> bool:
    """Whether a process still has its memory; a zombie does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def marked_processes(mark: str) -> Iterator[int]:
    """Processes with a mark, and their process groups, since vLLM's workers lose the mark.

    vLLM's workers overwrite their environment.
    """
    variable = f"{MARK}={mark}".encode()
    marked = [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _has(entry, variable)]
    groups = {_group_of(pid) for pid in marked} - {os.getpgrp(), 0}
    for entry in Path("/proc").glob("[0-9]*") if marked else ():
        pid = int(entry.name)
        if (pid in marked or _group_of(pid) in groups) and pid != os.getpid():
            yield pid


def _has(entry: Path, variable: bytes) -> bool:
    try:
        return variable in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _group_of(pid: int) -> int:
    """The process group of a process; 0 if the process is gone."""
    try:
        return os.getpgid(pid)
    except (ProcessLookupError, PermissionError):
        return 0

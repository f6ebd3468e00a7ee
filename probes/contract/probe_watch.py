"""Ends an engine program when the probe that started it is gone, even in the middle of a task."""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PROBE_PID = "GRPODOCTOR_PROBE_PID"
"""Environment variable with the process id of the probe."""

_POLL_SECONDS = 1.0
_ZOMBIES = "ZX"


def end_with_probe() -> None:
    """Kill this program's process group once the probe has ended.

    The probe ends its programs itself, unless it is killed. It holds one end of a pipe whose other
    end is the program's standard input, so that the input ends with the probe, also if that is gone
    before this is called. Ranks under torchrun inherit the pipe. The probe's process id is watched,
    too, if it is visible: a launcher replaces the input, and a process that the probe has forked
    may keep the pipe open.
    """
    if PROBE_PID not in os.environ:
        return  # started by hand
    if _is_pipe(0):
        _start(_wait_for_end_of_input)
    probe = os.environ[PROBE_PID]
    if probe.isdigit() and _is_alive(int(probe)):
        _start(lambda: _wait_for_process(int(probe)))


def _start(wait: Callable[[], None]) -> None:
    def end_afterwards() -> None:
        wait()
        with suppress(ProcessLookupError):
            os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=end_afterwards, daemon=True).start()


def _is_pipe(descriptor: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:  # closed
        return False


def _wait_for_end_of_input() -> None:
    with suppress(OSError):
        while os.read(0, 1):  # the probe writes nothing
            pass


def _wait_for_process(process: int) -> None:
    while _is_alive(process):
        time.sleep(_POLL_SECONDS)


def _is_alive(process: int) -> bool:
    """Whether a process is there and no zombie: a killed one remains until its parent waits."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it belongs to another user
        return True
    if sys.platform != "linux":
        return True
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] not in _ZOMBIES

"""Ends an engine program when the probe that started it is gone, even in the middle of a task."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

PROBE_PID = "GRPODOCTOR_PROBE_PID"
"""Environment variable with the process id of the probe."""

_POLL_SECONDS = 1.0


def end_with_probe() -> None:
    """Kill this program's process group once the probe has ended.

    The probe ends its programs itself, unless it is killed. Under torchrun the parent of a rank is
    the launcher, which outlives the probe, so the probe's own id is watched. Nothing is watched if
    the program was started by hand, or in a container where the probe is not visible.
    """
    probe = os.environ.get(PROBE_PID, "")
    if not probe.isdigit() or not _is_alive(int(probe)):
        return
    threading.Thread(target=_watch, args=(int(probe),), daemon=True).start()


def _watch(probe: int) -> None:
    while _is_alive(probe):
        time.sleep(_POLL_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it belongs to another user
        pass
    return True

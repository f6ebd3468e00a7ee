"""The contract of one input: a result or the documented error, within time and memory."""

from __future__ import annotations

import os
import re
import resource
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

SECONDS = 10
"""Processor time of one input. The kernel ends a worker that exceeds it inside compiled code."""

MEGABYTES = 1024.0
"""Peak memory of a worker while it reads one input."""

_ADDRESS_SPACE = 6 * 2**30
"""So that a runaway reader fails, and not the machine: more than libraries reserve, not use."""

READ, REFUSED = "read", "refused"


def outcome(
    read: Callable[[], object], refusals: tuple[type[Exception], ...], seconds: int = SECONDS
) -> str:
    """`read`, `refused`, or what broke the contract, with the place in the package."""
    _limit_processor_time(seconds)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # users see warnings of libraries on their terminal
            read()
    except refusals as error:
        return REFUSED if "\n" not in str(error) else f"an error of several lines: {_where(error)}"
    except BaseException as error:  # noqa: BLE001 - whatever it raises is the finding
        return f"{type(error).__name__}: {_where(error)}"
    peak = peak_megabytes()
    if peak > MEGABYTES:
        reset_peak()
        return f"{peak:.0f} MB of memory"
    return READ


def _limit_processor_time(seconds: int) -> None:
    used = int(time.process_time()) + 1
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, hard))


def limit_memory() -> None:
    """Bound the address space of this process, and write no core files."""
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def peak_megabytes() -> float:
    """The peak of this process's memory since the latest reset."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


def reset_peak() -> None:
    """Begin a new peak at the present memory."""
    Path("/proc/self/clear_refs").write_text("5")


def _where(error: BaseException) -> str:
    """The last place in this repository that the traceback names, and the message's first words."""
    root = str(Path(__file__).parents[2]) + os.sep
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(root)]
    place = frames[-1] if frames else None
    text = " ".join(str(error).split())[:100]
    file = place.filename.removeprefix(root) if place else "?"
    return f"{file}:{place.lineno if place else 0}: {text!r}"

"""Command line, environment and signals of worker processes that run a module of this package."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_PACKAGE_PARENT = Path(__file__).parents[2]


def module_command(module: str, *arguments: object) -> list[str]:
    """Command line that runs a module with this Python, without the current folder on its path."""
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def worker_environment(**variables: str) -> dict[str, str]:
    """This process's environment, in which a worker imports the same packages.

    Args:
        **variables: further environment variables.
    """
    import_path = [*(path for path in sys.path if path), str(_PACKAGE_PARENT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(import_path), **variables}


def kill_group(process: subprocess.Popen[bytes], number: int = signal.SIGKILL) -> None:
    """Send a signal to a process and to everything it started in its process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)

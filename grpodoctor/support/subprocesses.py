"""Starting and stopping worker processes that run a module of this package."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_PACKAGE_PARENT = Path(__file__).parents[2]
_EXIT_SECONDS = 5.0


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


class LineWorker:
    """A worker process that answers each line on stdin with one line on stdout.

    The process starts with the first request. It has its own process group, so that Ctrl-C on the
    terminal reaches only the parent.

    Args:
        module: dotted name of the module to run.
        arguments: its command-line arguments.
        variables: further environment variables.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[object] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._command = module_command(module, *arguments)
        self._variables = dict(variables or {})
        self._process: subprocess.Popen[bytes] | None = None

    def request(self, line: bytes, timeout: float) -> bytes | None:
        """Send one line and read the answer.

        Args:
            line: the request, with its newline.
            timeout: seconds of wall-clock time to wait for the first byte of the answer.

        Returns:
            The answer with its newline; None if the worker died or did not answer in time. It is
            stopped then, and the next request starts another one.

        Raises:
            OSError: if the worker cannot be started.
        """
        answer = _exchange(self._started(), line, timeout)
        if answer.endswith(b"\n"):
            return answer
        self.close()
        return None

    def close(self) -> None:
        """Stop the worker; the next request starts another one."""
        if self._process is not None:
            self._stop()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - a module of this package, no shell
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                process_group=0,
                env=worker_environment(**self._variables),
            )
            self._stop = weakref.finalize(self, stop_worker, self._process)
        return self._process


def stop_worker(process: subprocess.Popen[bytes], timeout: float = _EXIT_SECONDS) -> None:
    """Close a worker's pipes, wait for its exit, and kill it if it does not exit in time."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # unsent data of a worker that is gone
                pipe.close()
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _exchange(process: subprocess.Popen[bytes], line: bytes, timeout: float) -> bytes:
    if process.stdin is None or process.stdout is None:
        return b""
    try:
        process.stdin.write(line)
        process.stdin.flush()
    except OSError:
        return b""
    ready, _, _ = select.select([process.stdout], [], [], timeout)
    return process.stdout.readline() if ready else b""

"""Programs that start at once: forks of a process that has already imported the trainer.

Importing torch and transformers takes a new Python six seconds of processor time, a fork none.
Tests whose subject is the start itself, or torchrun, start real programs.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path

GRPODOCTOR = "from grpodoctor.cli.main import main; main()"
"""The source of the command-line program."""

_FORKSERVER = multiprocessing.get_context("forkserver")
_FORKSERVER.set_forkserver_preload(["tests.forked_imports"])


class Forked:
    """A running program, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, process: ForkServerProcess, stderr: Path) -> None:
        self._process, self._stderr = process, stderr

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, or minus the signal that ended the program; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def communicate(self, timeout: float) -> tuple[None, str]:
        """Wait for the end; returns what the program wrote to stderr."""
        assert wait([self._process.sentinel], timeout), f"it runs on:\n{self.stderr}"
        self._process.join()
        return None, self.stderr

    @property
    def stderr(self) -> str:
        return self._stderr.read_text(encoding="utf-8", errors="replace")


@contextmanager
def forked(
    source: str, *arguments: str, cwd: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Forked]:
    """Run `python -c source arguments` as a fork, with additions to the environment."""
    stderr = cwd / f"stderr-{time.monotonic_ns()}"
    variables = {**os.environ, "HF_HUB_OFFLINE": "1", **(environment or {})}
    process = _FORKSERVER.Process(target=_run, args=(source, arguments, cwd, variables, stderr))
    process.start()
    try:
        yield Forked(process, stderr)
    finally:
        process.kill()
        process.join(30)


def _run(
    source: str, arguments: tuple[str, ...], cwd: Path, variables: dict[str, str], stderr: Path
) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(variables)
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["-c", *arguments]
    sys.path.insert(0, "")
    try:
        exec(compile(source, "<forked>", "exec"), {"__name__": "__main__"})  # noqa: S102
    finally:
        atexit._run_exitfuncs()  # multiprocessing leaves them out

"""Programs that start at once: forks of a process that has already imported the trainer.

Importing torch and transformers takes a new Python six seconds of processor time, a fork none.
Tests whose subject is the start itself, or torchrun, start real programs.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path

GRPODOCTOR = "from grpodoctor.cli.main import main; main()"
"""The source of the command-line program."""
SCRIPT = (
    "import runpy, sys; from pathlib import Path; sys.argv = sys.argv[1:]\n"
    "sys.path.insert(0, str(Path(sys.argv[0]).parent)); runpy.run_path(sys.argv[0], {}, '__main__')"
)
"""The source of a program that runs the script of its first argument with the others."""

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


@contextmanager
def forked_ranks(source: str, *arguments: str, cwd: Path, count: int = 2) -> Iterator[list[Forked]]:
    """Ranks with the environment of torchrun, which itself would start new Pythons."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    with ExitStack() as stack:
        ranks = []
        for rank in range(count):
            variables = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            program = forked(source, *arguments, cwd=cwd, environment=variables)
            ranks.append(stack.enter_context(program))
        yield ranks


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

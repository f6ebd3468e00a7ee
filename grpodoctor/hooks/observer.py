"""The observer process: examines a live run, treats it and sends alerts during the training.

Started as `python -m grpodoctor.hooks.observer RUN APPLY` by a training that is attached with
`apply="safe"` or `apply="unsafe"`, or whose settings file has channels for alerts. It does what
`grpodoctor watch --apply` does: it reads the run directory and sends requests through the mailbox.
In the training's own process, the examination would take the interpreter from the training.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

from grpodoctor.hooks.alerts.run_alerts import RunAlerts
from grpodoctor.hooks.alerts.training_alerts import AlertPipe
from grpodoctor.hooks.live_report import project_settings
from grpodoctor.monitor.session import Session, Tick
from grpodoctor.support.subprocesses import kill_group, module_command, worker_environment
from grpodoctor.treatment.doctor import Apply

POLL_SECONDS = 0.5
NICENESS = 5
"""On a busy machine the training takes precedence."""
_EXIT_SECONDS = 3.0
_ALERT_SECONDS = 2.0
"""How long the last alerts may take when the run has ended."""
_READ_BYTES = 1 << 16


class Observer:
    """The training's side: a running observer, which ends with the run or with this process.

    Args:
        run_dir: the run directory.
        apply: remedies that it may apply.

    Raises:
        ConfigError: if the project's settings file is not valid.
        OSError: if the process cannot be started.
    """

    def __init__(self, run_dir: Path, apply: Apply) -> None:
        project_settings()  # reports an error in them to the user who attaches
        self._process = subprocess.Popen(  # noqa: S603 - our own module, no shell
            module_command("grpodoctor.hooks.observer", run_dir, apply),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # alerts that only the training can deliver
            stderr=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C in the terminal is for the training only
            env=worker_environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"),
        )
        self._last_output = b""

    def failure(self) -> str:
        """Why the process has ended before the run; empty if it runs."""
        code = self._process.poll()
        return "" if code is None else f"the observer process ended (exit code {code})"

    def read(self) -> bytes:
        """What the process has written for the training, without waiting."""
        output = self._process.stdout
        if output is None or output.closed:
            last, self._last_output = self._last_output, b""
            return last
        os.set_blocking(output.fileno(), False)
        with suppress(BlockingIOError):
            return os.read(output.fileno(), _READ_BYTES)
        return b""

    def stop(self) -> None:
        """End the process: let it see the end of the run, and kill it after a wait.

        What it has written can still be read.
        """
        try:
            self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            kill_group(self._process)
            self._process.wait()
        self._last_output = self.read()
        if self._process.stdout is not None:
            self._process.stdout.close()


def observe(
    session: Session,
    parent: int,
    poll_seconds: float = POLL_SECONDS,
    listen: Callable[[Session, Tick], None] | None = None,
) -> None:
    """Follow and treat a run until it has finished or the training's process is gone.

    Args:
        session: the run, with the remedies that may be applied.
        parent: process id of the training.
        poll_seconds: pause between two polls.
        listen: called with each tick.
    """
    while os.getppid() == parent and not session.examination.finished:
        tick = session.tick()
        if listen is not None:
            listen(session, tick)
        if not tick.more:
            time.sleep(poll_seconds)


def main() -> None:
    """Observe the run of the parent process."""
    parent = os.getppid()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    run_dir, apply = sys.argv[1:]
    project, pipe = project_settings(), AlertPipe(sys.stdout.fileno())
    alerts = RunAlerts(project.alerts, pipe.warn, pipe.send, is_own_run=True)
    session = Session(Path(run_dir), apply=cast("Apply", apply), project=project)
    try:
        observe(session, parent, listen=alerts.listen)
    finally:
        alerts.close(_ALERT_SECONDS)


if __name__ == "__main__":
    main()

"""Runs the watch screen in the terminal, and leaves it in every way that a terminal can end."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from grpodoctor.cli.watch_screen.run_reader import RunReader
from grpodoctor.cli.watch_screen.watch_app import WatchApp, snapshot_path

if TYPE_CHECKING:
    from textual.app import App

    from grpodoctor.monitor.report import Report
    from grpodoctor.monitor.session import Session, Tick

_STOP_SECONDS = 0.25
"""How long leaving waits for the reader to finish what it is doing."""
_FORCE_SECONDS = 3.0
"""How long a signal waits until the screen is left."""
_HANGUP_CODE = 128 + signal.SIGHUP
_HANGUP_CHECK_SECONDS = 0.5


def show_screen(
    session: Session,
    *,
    ended: Callable[[], bool],
    interval: float,
    listeners: Sequence[Callable[[Session, Tick], None]] = (),
) -> Report:
    """Show a run until the user quits or the watch is over; returns the last report shown.

    Args:
        session: the run.
        ended: called after each poll that read all available data; True ends the watch.
        interval: seconds between two polls.
        listeners: called with each tick.

    Raises:
        GrpodoctorError: what ended the reading of the run.
    """
    reader = RunReader(session, ended=ended, interval=interval, listeners=listeners)
    app = WatchApp(reader, save_report)
    run_in_terminal(app)
    reader.stop(_STOP_SECONDS)
    if (error := reader.error or app.defect) is not None:
        raise error
    return reader.state.snapshot.report


def save_report(session: Session) -> str:
    """Write the state of a session as HTML into the current directory.

    Raises:
        InputError: if the file cannot be written.
    """
    from grpodoctor.errors import InputError
    from grpodoctor.monitor.report_data import report_data
    from grpodoctor.report import html
    from grpodoctor.report.run.view import view_of
    from grpodoctor.support.files.atomic_files import write_text

    facts = session.examination.facts()
    path = snapshot_path(facts.path, facts.last_step)
    try:
        write_text(path, html.render(view_of(report_data(session.examination))))
    except OSError as error:
        raise InputError(
            f"cannot write the report: {error.strerror or error}",
            where=str(path.absolute()),
            remedy="start watch in a directory that you can write to",
        ) from error
    return f"Report written to {path}"


def run_in_terminal(app: App[Any]) -> Any:
    """Run an application until it exits; signals and a lost terminal end it as well.

    Returns:
        The application's result; None if a signal ended it.
    """
    over = threading.Event()
    loop = asyncio.new_event_loop()
    watcher = threading.Thread(target=_exit_on_hangup, args=(over,), daemon=True)
    with _exit_on_signals(lambda: loop.call_soon_threadsafe(app.exit)):
        watcher.start()
        try:
            return app.run(loop=loop)
        finally:
            over.set()
            loop.close()


@contextmanager
def _exit_on_signals(leave: Callable[[], object]) -> Iterator[None]:
    """Let SIGINT and SIGTERM end the application, and SIGHUP the process.

    A terminal that takes no output, such as that of a stalled connection, blocks textual. The
    process then ends without it after a few seconds.
    """
    timers: list[threading.Timer] = []

    def end(number: int, _frame: FrameType | None) -> None:
        timers.append(threading.Timer(_FORCE_SECONDS, os._exit, (128 + number,)))
        timers[-1].daemon = True
        timers[-1].start()
        leave()

    def hang_up(_number: int, _frame: FrameType | None) -> None:
        os._exit(_HANGUP_CODE)

    handlers = {signal.SIGINT: end, signal.SIGTERM: end, signal.SIGHUP: hang_up}
    previous = {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        if previous[number] is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        for number, former in previous.items():
            signal.signal(number, former)


def _exit_on_hangup(over: threading.Event) -> None:
    """End the process when the terminal is gone.

    A process that is not in the terminal's session gets no SIGHUP. The exit is immediate because
    textual would wait for a terminal that takes no more output.
    """
    poll = select.poll()
    poll.register(sys.__stdin__.fileno() if sys.__stdin__ else 0, 0)
    while not over.wait(_HANGUP_CHECK_SECONDS):
        if any(
            event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0)
        ):
            os._exit(_HANGUP_CODE)

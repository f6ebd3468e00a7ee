"""A progress bar for work that may take longer than two seconds.

The bar goes to stderr and only to a terminal; in a pipe nothing is printed. Packages below the CLI
take a `Progress` as a parameter and report to it; only the CLI creates a bar.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from grpodoctor.support.safe_text import plain

DELAY_SECONDS = 2.0
"""Shorter work shows no bar."""

_DETAIL_WIDTH = 40


class Progress(Protocol):
    """Receives how much of the work is done."""

    def update(
        self, completed: float, *, total: float | None = None, detail: str | None = None
    ) -> None:
        """Report progress.

        Args:
            completed: units of work done so far.
            total: all units; None if unknown or unchanged.
            detail: text shown next to the bar; None leaves it unchanged.
        """


class NoProgress:
    """Discards all reports."""

    def update(
        self, completed: float, *, total: float | None = None, detail: str | None = None
    ) -> None:
        """Do nothing."""


@contextmanager
def progress_bar(
    description: str,
    *,
    total: float | None = None,
    in_bytes: bool = False,
    delay: float | None = None,
) -> Iterator[Progress]:
    """Show a bar on stderr while the block runs; it disappears at the end.

    Args:
        description: what is being done, such as "reading".
        total: units of work; None shows a moving bar until an update gives the total.
        in_bytes: the units are bytes, shown as kB, MB and GB.
        delay: seconds of work before the bar appears; `DELAY_SECONDS` if None.
    """
    if not sys.stderr.isatty():
        yield NoProgress()
        return
    bar = _Bar(description, total=total, in_bytes=in_bytes)
    timer = threading.Timer(DELAY_SECONDS if delay is None else delay, bar.start)
    timer.daemon = True
    with suppress(RuntimeError):  # no thread can be started: no bar
        timer.start()
    try:
        yield bar
    finally:
        timer.cancel()
        bar.stop()


class _Bar:
    """A rich progress bar that starts hidden."""

    def __init__(self, description: str, *, total: float | None, in_bytes: bool) -> None:
        from rich import progress as rich_progress
        from rich.console import Console

        amount = rich_progress.DownloadColumn() if in_bytes else rich_progress.MofNCompleteColumn()
        self._progress = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}", markup=False),
            rich_progress.BarColumn(bar_width=20),
            amount,
            rich_progress.TimeElapsedColumn(),
            rich_progress.TextColumn("{task.fields[detail]}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(description, total=total, detail="")
        self._lock = threading.Lock()
        self._started = self._stopped = False

    def update(
        self, completed: float, *, total: float | None = None, detail: str | None = None
    ) -> None:
        if detail is not None:
            self._progress.update(self._task, detail=plain(detail, limit=_DETAIL_WIDTH))
        self._progress.update(self._task, completed=completed, total=total)

    def start(self) -> None:
        """Show the bar, unless the work has ended; called by the timer's thread."""
        with self._lock:
            if not self._stopped:
                self._started = True
                self._progress.start()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._started:
                self._progress.stop()

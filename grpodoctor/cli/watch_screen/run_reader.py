"""A thread that reads and examines a run, so that the keys of the screen never wait for it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Literal

from grpodoctor.errors import GrpodoctorError

if TYPE_CHECKING:
    from grpodoctor.monitor.session import Session, Tick
    from grpodoctor.monitor.snapshot import Snapshot

INCOMPLETE_STEP_SECONDS = 0.1
"""Seconds between two polls while the latest step may be incomplete."""

_BACKLOG_SECONDS = 0.25
"""Seconds between two snapshots while a backlog is read: a snapshot costs as much as many steps."""
_CLOCK_SECONDS = 1.0
"""Seconds after which the time since the latest step is shown again."""
_MOST_NOTICES = 100
_NOTABLE = {"restarted", "removed", "resumed", "finished", "warning"}
"""News that the panes do not show."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A short text for the user."""

    text: str
    severity: Literal["information", "warning", "error"] = "information"


@dataclass(frozen=True, slots=True)
class WatchState:
    """What the screen shows, at one moment."""

    version: int
    """Increases with every change."""
    snapshot: Snapshot
    has_backlog: bool = False
    """Whether older steps are still being read, or nothing was read yet."""


class RunReader:
    """Follows a session in a thread.

    Args:
        session: the run; only the thread uses it between `start` and the thread's end.
        ended: called after each poll that read all available data; True ends the watch.
        interval: seconds between two polls.
        listeners: called with each tick.
    """

    def __init__(
        self,
        session: Session,
        *,
        ended: Callable[[], bool],
        interval: float,
        listeners: Sequence[Callable[[Session, Tick], None]] = (),
    ) -> None:
        self._session, self._ended = session, ended
        self._interval, self._listeners = interval, listeners
        # Before the first poll it is unknown whether there are steps; "waiting" would be a guess.
        self.state = WatchState(0, session.snapshot(), has_backlog=True)
        """The latest state; replaced as a whole, so that any thread may read it."""
        self.error: BaseException | None = None
        """Why the thread ended early."""
        self.notices: deque[Notice] = deque(maxlen=_MOST_NOTICES)
        """Texts that the screen has not shown yet."""
        self._actions: SimpleQueue[Callable[[Session], str]] = SimpleQueue()
        self._wake, self._stopping = threading.Event(), False
        self._published = 0.0
        self._thread = threading.Thread(target=self._run, name="grpodoctor-watch", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread; wait for it at most `timeout` seconds."""
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout)

    @property
    def is_done(self) -> bool:
        """Whether the watch is over: the run has ended, or an error occurred."""
        return not self._thread.is_alive()

    def submit(self, action: Callable[[Session], str]) -> None:
        """Let the thread act on the session; what the action returns, or its error, is noticed."""
        self._actions.put(action)
        self._wake.set()

    def _run(self) -> None:
        try:
            self._follow()
        except BaseException as error:  # noqa: BLE001 - raised again by the thread of the screen
            self.error = error

    def _follow(self) -> None:
        while not self._stopping:
            tick = self._session.tick()
            if self._is_due(tick):
                self._publish(has_backlog=tick.more)
            self._notice(tick)
            for listen in self._listeners:
                listen(self._session, tick)
            self._act()
            if tick.more:
                continue
            if self._ended():
                return
            pause = min(self._interval, INCOMPLETE_STEP_SECONDS) if tick.held else self._interval
            self._wake.wait(pause)
            self._wake.clear()
            self._act()

    def _is_due(self, tick: Tick) -> bool:
        """Whether the screen needs a new state after a poll."""
        waited = time.monotonic() - self._published
        if tick.more:
            return waited >= _BACKLOG_SECONDS
        has_news = tick.restarted or tick.steps or tick.events or self.state.has_backlog
        return bool(has_news) or waited >= _CLOCK_SECONDS

    def _publish(self, *, has_backlog: bool) -> None:
        self._published = time.monotonic()
        snapshot = self._session.snapshot()
        self.state = WatchState(self.state.version + 1, snapshot, has_backlog)

    def _notice(self, tick: Tick) -> None:
        from grpodoctor.report.run.phrases import news_line

        for news in self._session.news(tick):
            if news["kind"] in _NOTABLE and not tick.more:
                severity: Literal["information", "warning"] = (
                    "warning" if news["kind"] in {"removed", "warning"} else "information"
                )
                self.notices.append(Notice(news_line(news), severity))

    def _act(self) -> None:
        while True:
            try:
                action = self._actions.get_nowait()
            except Empty:
                return
            try:
                self.notices.append(Notice(action(self._session)))
            except GrpodoctorError as error:
                self.notices.append(Notice(str(error), "error"))
            self._publish(has_backlog=False)

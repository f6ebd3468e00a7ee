"""A run that pages show: one thread reads and examines it, all readers see finished snapshots."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from grpodoctor.errors import ConfigError, GrpodoctorError, RunError
from grpodoctor.monitor.advice import AdviceSource
from grpodoctor.monitor.dashboard.run_files import file_state
from grpodoctor.monitor.dashboard.settings import DashboardSettings
from grpodoctor.monitor.dashboard.step_means import RunMeans, StepMeans
from grpodoctor.monitor.downsampled_series import SeriesByMetric
from grpodoctor.monitor.report_data import ReportData, report_data
from grpodoctor.monitor.session import Session, Tick
from grpodoctor.runs.reading.opening import is_native
from grpodoctor.runs.records import Manifest, StepRecord
from grpodoctor.treatment.treatments import Treatment
from grpodoctor.vocabulary.knobs import Setting

RunState = Literal["waiting", "reading", "live", "stopped", "finished", "gone", "unreadable"]
"""`waiting`: the run has written nothing yet. `stopped`: it neither ended nor writes any more.
`gone`: its files have vanished. The states of a run with data keep showing the data."""

STOPPED_SECONDS = 300.0
"""Seconds without a step after which a run counts as stopped, unless its steps take longer."""
_STOPPED_STEPS = 10.0
"""Durations of a step after which a run counts as stopped."""
_ENDED_SECONDS = 120.0
"""Seconds without a write after which an incomplete last step is read."""
_POLL_SECONDS = 1.0
"""Shortest time between two polls, however many browsers ask."""
_CHECK_SECONDS = 0.05
_MOST_METRICS = 400
"""Metrics kept for charts on request."""
_TREATMENT_SECONDS = 10.0
"""Longest wait of a reader's approval for the thread."""
_FIRST_SNAPSHOT = 0.3
_SLOWEST_SNAPSHOT = 3.0
"""Seconds between two snapshots of a run that is read. A long run shows its first steps early;
later snapshots take longer and come less often."""


@dataclass(frozen=True, slots=True)
class RunView:
    """The state of a run at one moment. Nothing changes it afterwards."""

    revision: int = 0
    """Grows with each change."""
    state: RunState = "reading"
    data: ReportData | None = None
    """None until the run has steps."""
    means: RunMeans = field(default_factory=RunMeans)
    """The metrics by which runs are compared."""
    metrics: SeriesByMetric = field(default_factory=lambda: SeriesByMetric(()))
    """Every metric of the run, for charts on request."""
    message: str = ""
    """Why the run cannot be read, in one line."""
    manifest: Manifest = field(default_factory=Manifest)
    knobs: Mapping[str, Setting] = field(default_factory=dict)
    """The run's current settings by canonical name."""
    advice_source: AdviceSource | None = None
    """Resolves remedies for a framework that the reader chooses."""
    proposal: Treatment | None = None
    """A treatment that waits for a reader's approval."""
    steps_per_minute: float | None = None
    written: float = 0.0
    """Unix time of the latest step or write; 0 if unknown."""

    @property
    def is_growing(self) -> bool:
        """Whether the next moments may bring new steps."""
        return self.state in {"waiting", "reading", "live"}


class ObservedRun:
    """One run under observation.

    Args:
        key: the run's name in addresses and menus.
        path: the run directory or log.
        settings: how to read it.
    """

    def __init__(self, key: str, path: Path, settings: DashboardSettings) -> None:
        self.key = key
        self.path = path
        self._settings = settings
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._session: Session | None = None
        self._means = StepMeans()
        self._metrics = SeriesByMetric((), further=_MOST_METRICS)
        self._view = RunView()
        self._polled = 0.0
        self._published = 0.0
        self._interval = _FIRST_SNAPSHOT

    @property
    def view(self) -> RunView:
        """The latest snapshot."""
        return self._view

    def refresh(self, wait_seconds: float = 0.15) -> RunView:
        """Let the thread read what the run wrote, and return the latest snapshot.

        Args:
            wait_seconds: longest wait for the thread.
        """
        with self._starting:
            is_idle = self._thread is None or not self._thread.is_alive()
            if is_idle and time.monotonic() - self._polled >= _POLL_SECONDS:
                self._thread = threading.Thread(target=self._read, daemon=True)
                self._thread.start()
            thread = self._thread
        if thread is not None:
            self._await(thread, wait_seconds)
        return self._view

    def approve(self, treatment_id: str) -> None:
        """Request the proposed treatment from the live run.

        Raises:
            ConfigError: if treating is not allowed, or this treatment is no longer proposed.
            RunError: if the request cannot be sent.
        """
        with self._starting:
            self._treated_session().approve(treatment_id)
            self._publish("", changed=True)

    def decline(self, treatment_id: str) -> None:
        """Withdraw the proposed treatment; its remedy is not proposed again in this run.

        Raises:
            ConfigError: if treating is not allowed, or this treatment is no longer proposed.
        """
        with self._starting:
            self._treated_session().decline(treatment_id)
            self._publish("", changed=True)

    def _treated_session(self) -> Session:
        """The session, once the thread leaves it alone; the caller holds the lock."""
        if not self._settings.allow_treatment:
            raise ConfigError(
                "this dashboard does not treat runs", remedy="start it with --allow-treatment"
            )
        if self._thread is not None:
            self._thread.join(_TREATMENT_SECONDS)
        if self._session is None or (self._thread is not None and self._thread.is_alive()):
            raise RunError(
                "the run is being read", where=str(self.path)[:200], remedy="try again in a moment"
            )
        return self._session

    def _await(self, thread: threading.Thread, seconds: float) -> None:
        """Wait for the thread, or for the first snapshot of a run that has none."""
        has_data, deadline = self._view.data is not None, time.monotonic() + seconds
        while thread.is_alive() and (left := deadline - time.monotonic()) > 0:
            thread.join(min(left, _CHECK_SECONDS))
            if not has_data and self._view.data is not None:
                return

    # In the thread

    def _read(self) -> None:
        """Read until nothing is left."""
        try:
            self._catch_up()
        except GrpodoctorError as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - the page reports it; the other runs go on
            traceback.print_exc(file=sys.stderr)
            self._fail(f"reading the run failed: {type(error).__name__}: {error}")
        finally:
            self._polled = time.monotonic()

    def _catch_up(self) -> None:
        session = self._opened()
        self._published, self._interval = time.monotonic(), _FIRST_SNAPSHOT
        changed, more = self._view.data is None, True
        while more:
            files = file_state(self.path)
            if not files.exists and self._view.data is not None:
                self._session = None
                self._view = replace(self._view, state="gone", revision=self._view.revision + 1)
                return
            is_over = session.examination.finished or _age(files.newest) > _ENDED_SECONDS
            tick = session.tick(final=is_over)
            more = tick.more
            changed |= _is_news(tick)
        self._publish("", changed=changed)

    def _opened(self) -> Session:
        if self._session is None:
            self._means = StepMeans()
            self._metrics = SeriesByMetric((), further=_MOST_METRICS)
            self._session = Session(
                self.path,
                apply="ask" if self._is_treatable() else "none",
                project=self._settings.project(),
                options=self._settings.read_options(),
                on_step=self._on_step,
            )
        return self._session

    def _is_treatable(self) -> bool:
        """Whether a reader may treat the run: it is live and takes requests.

        A run that has stopped would never take a request out of its mailbox.
        """
        is_allowed = self._settings.allow_treatment and is_native(self.path)
        return is_allowed and _age(file_state(self.path).newest) < STOPPED_SECONDS

    def _on_step(self, record: StepRecord) -> None:
        """Note a step, and publish a snapshot of a run that is being read, now and then."""
        self._means.observe(record)
        self._metrics.observe(record)
        began = time.monotonic()
        if began - self._published > self._interval:
            self._publish("reading", changed=True)
            self._published = time.monotonic()
            self._interval = min(2 * self._interval, _SLOWEST_SNAPSHOT)

    def _publish(self, state: Literal["", "reading"], *, changed: bool) -> None:
        session, before = self._session, self._view
        if session is None:
            return
        view = replace(before, state=state or self._state(session), message="")
        if changed or view != before:
            view = replace(view, revision=before.revision + 1)
        self._view = self._with_data(view, session) if changed else view

    def _state(self, session: Session) -> RunState:
        examination = session.examination
        if not examination.steps:
            return "waiting"
        if examination.finished:
            return "finished"
        pace = examination.steps_per_minute
        patience = max(STOPPED_SECONDS, _STOPPED_STEPS * 60 / pace if pace else 0.0)
        return "live" if _age(_written(session)) < patience else "stopped"

    def _with_data(self, view: RunView, session: Session) -> RunView:
        examination = session.examination
        data = report_data(examination, self._settings.framework, session.responses)
        return replace(
            view,
            data=replace(data, series=data.series.copy()) if examination.steps else None,
            means=self._means.means(),
            metrics=self._metrics.copy(),
            manifest=examination.manifest,
            knobs=dict(examination.engine.chart.knobs),
            proposal=None if examination.finished else session.doctor.proposal,
            advice_source=examination.advice_source(),
            steps_per_minute=examination.steps_per_minute,
            written=_written(session),
        )

    def _fail(self, message: str) -> None:
        self._session = None
        view = self._view
        if (view.state, view.message) != ("unreadable", message):
            revision = view.revision + 1
            self._view = replace(view, state="unreadable", message=message, revision=revision)


def _written(session: Session) -> float:
    return session.examination.last_time or session.written_at()


def _is_news(tick: Tick) -> bool:
    return bool(tick.steps or tick.events or tick.restarted)


def _age(moment: float) -> float:
    return time.time() - moment

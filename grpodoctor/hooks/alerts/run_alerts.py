"""Alerts of a run under observation: from the session's ticks to the channels."""

from __future__ import annotations

from collections.abc import Callable

from grpodoctor.hooks.alerts.alert_filter import AlertFilter
from grpodoctor.hooks.alerts.channel import Alert
from grpodoctor.hooks.alerts.delivery import CLOSE_SECONDS, Delivery, Warn, channel_of
from grpodoctor.monitor.alert_settings import AlertSettings
from grpodoctor.monitor.session import Session, Tick


class RunAlerts:
    """Sends the findings of a session.

    A session that begins in the middle of a run first reads its past; only findings that are still
    active at the end of it are sent. Nothing is sent about a run that had already ended.

    Args:
        settings: the section `[alerts]`.
        warn: receives one line when a channel fails for the first time.
        to_training: receives the alerts for channels that work only in the training; None if this
            process has no connection to one.
        is_own_run: whether this process observes the run from its start, so that its end is news.
    """

    def __init__(
        self,
        settings: AlertSettings,
        warn: Warn,
        to_training: Callable[[Alert], None] | None = None,
        *,
        is_own_run: bool = False,
    ) -> None:
        channels = [channel_of(each) for each in settings.channels]
        self._filter = AlertFilter(settings)
        self._delivery = Delivery([each for each in channels if not each.in_training], warn)
        remote = [each.kind for each in channels if each.in_training]
        self._to_training = to_training if remote else None
        self._is_past = not is_own_run
        if remote and to_training is None:
            names = " and ".join(remote)
            warn(f"alerts to {names} are sent only by grpodoctor.attach, in the training")

    def listen(self, session: Session, tick: Tick) -> None:
        """Send what a tick brought; returns at once."""
        if tick.restarted:
            self._filter.restart()
        if tick.more or session.waiting:
            return
        was_past, self._is_past = self._is_past, False
        if not tick.steps or (was_past and session.examination.finished):
            return
        report = session.examination.report()
        step, run = report.run.last_step or 0, report.run.path
        for alert in self._filter.alerts(report.diagnosis.counted, step, run):
            self._delivery.send(alert)
            if self._to_training is not None:
                self._to_training(alert)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Try what is queued once more, for a bounded time."""
        self._delivery.close(seconds)

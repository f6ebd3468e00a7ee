"""Delivers alerts in threads, so that neither the run nor another channel waits.

Each channel has a thread and a bounded queue. A channel that fails costs one warning; its alerts
are tried again later.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module

from grpodoctor.errors import GrpodoctorError
from grpodoctor.hooks.alerts.channel import Alert, Channel, ChannelError
from grpodoctor.monitor.alert_settings import ChannelSettings

MOST_WAITING = 64
"""Alerts that wait for one channel; further ones are dropped."""
RETRY_SECONDS = (30.0, 120.0, 600.0)
"""Waits before a failed alert is tried again; then it is dropped."""
CLOSE_SECONDS = 5.0
"""How long closing waits for all channels together."""
_POLL_SECONDS = 0.2

Warn = Callable[[str], None]


def channel_of(settings: ChannelSettings) -> Channel:
    """The channel of a table in the settings file; its class is in the module of its kind."""
    module = import_module(f"grpodoctor.hooks.alerts.{settings.kind}")
    kind: type[Channel] = getattr(module, f"{settings.kind.capitalize()}Channel")
    return kind(settings)


class Delivery:
    """The channels of a process.

    Args:
        channels: where alerts go.
        warn: receives one line when a channel fails for the first time.
    """

    def __init__(self, channels: Sequence[Channel], warn: Warn) -> None:
        self._workers = [_Worker(channel, warn) for channel in channels]

    def send(self, alert: Alert) -> None:
        """Queue an alert for every channel; returns at once."""
        for worker in self._workers:
            worker.put(alert)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Try what is queued once more, for a bounded time."""
        for worker in self._workers:
            worker.closing.set()
        share = seconds / max(1, len(self._workers))
        for worker in self._workers:
            worker.thread.join(share)


class _Worker:
    """One channel with its queue and its thread."""

    def __init__(self, channel: Channel, warn: Warn) -> None:
        self.closing = threading.Event()
        self._channel, self._warn = channel, warn
        self._has_warned = False
        self._queue: queue.Queue[Alert] = queue.Queue(MOST_WAITING)
        name = f"alerts-{channel.kind}"
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def put(self, alert: Alert) -> None:
        try:
            self._queue.put_nowait(alert)
        except queue.Full:
            self._complain("its queue is full, and alerts are dropped")

    def _run(self) -> None:
        while True:
            try:
                alert = self._queue.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if self.closing.is_set():
                    break
            else:
                self._deliver(alert)
        with suppress(Exception):  # no caller waits for a channel that cannot be closed
            self._channel.close()

    def _deliver(self, alert: Alert) -> None:
        for seconds in (*RETRY_SECONDS, None):
            reason = attempt(self._channel, alert)
            if not reason:
                return
            self._complain(reason)
            if seconds is None or self.closing.wait(seconds):
                return

    def _complain(self, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(warning_of(self._channel, reason))


def warning_of(channel: Channel, reason: str) -> str:
    """The one warning about a channel."""
    return f"the alert channel {channel.kind} fails and is retried: {reason}"


def attempt(channel: Channel, alert: Alert) -> str:
    """Send an alert; returns why it failed, without the details of unforeseen errors."""
    try:
        channel.send(alert)
    except ChannelError as error:
        return error.what
    except GrpodoctorError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - the text of an unforeseen error may hold a secret
        return type(error).__name__
    return ""

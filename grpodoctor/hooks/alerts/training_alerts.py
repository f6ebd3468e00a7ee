"""Alerts that only the training's process can deliver, such as those of W&B.

The observer process finds them. It sends one JSON object per line through a pipe that neither end
ever waits for.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from grpodoctor.hooks.alerts.channel import Alert, Channel
from grpodoctor.hooks.alerts.delivery import (
    MOST_WAITING,
    RETRY_SECONDS,
    attempt,
    channel_of,
    warning_of,
)
from grpodoctor.monitor.alert_settings import AlertSettings
from grpodoctor.support.safe_text import json_bytes, plain

_ATOMIC_BYTES = 4096
"""A pipe takes a line of this size whole or not at all."""
_LONGEST_WARNING = 300
_log = logging.getLogger("grpodoctor")


class AlertPipe:
    """The observer's end: writes lines, and drops those that do not fit into the pipe.

    Args:
        descriptor: where to write.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)

    def send(self, alert: Alert) -> None:
        """Pass an alert on to the training."""
        data = {
            key: value for key, value in alert.to_json().items() if key not in {"title", "text"}
        }
        self._write({"alert": data})

    def warn(self, text: str) -> None:
        """Let the training log a warning."""
        self._write({"warning": text[:_LONGEST_WARNING]})

    def _write(self, message: dict[str, Any]) -> None:
        line = json_bytes(message) + b"\n"
        if len(line) <= _ATOMIC_BYTES:
            try:
                os.write(self._descriptor, line)
            except OSError:  # the pipe is full, or the training is gone
                return


class TrainingAlerts:
    """The training's end: delivers what has arrived, once per step, without a thread.

    Args:
        read: returns the bytes that have arrived, without waiting.
        channels: channels that work in this process and do not block.
        clock: seconds of a clock that never goes back.
    """

    def __init__(
        self,
        read: Callable[[], bytes],
        channels: Sequence[Channel],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._clock = read, clock
        self._outlets = [_Outlet(channel) for channel in channels]
        self._rest = b""

    def deliver(self) -> None:
        """Deliver the alerts that have arrived, and retry those that failed."""
        *lines, self._rest = (self._rest + self._read()).split(b"\n")
        for line in lines:
            self._take(line)
        for outlet in self._outlets:
            outlet.flush(self._clock())

    def _take(self, line: bytes) -> None:
        try:
            message = orjson.loads(line)
        except orjson.JSONDecodeError:  # printed by something else in the observer's process
            return
        if "warning" in message:
            _log.warning("%s", plain(message["warning"]))
        else:
            alert = Alert.from_json(message["alert"])
            for outlet in self._outlets:
                outlet.waiting.append(alert)


def training_alerts(read: Callable[[], bytes], settings: AlertSettings) -> TrainingAlerts:
    """The training's end for the channels of a settings file that work only there.

    Args:
        read: returns the bytes that have arrived, without waiting.
        settings: the section `[alerts]`.
    """
    channels = [channel_of(each) for each in settings.channels]
    return TrainingAlerts(read, [each for each in channels if each.in_training])


class _Outlet:
    """One channel with the alerts that wait for it."""

    def __init__(self, channel: Channel) -> None:
        self.waiting: deque[Alert] = deque(maxlen=MOST_WAITING)
        self._channel = channel
        self._failures = 0
        self._has_warned = False
        self._next_try = 0.0

    def flush(self, now: float) -> None:
        while self.waiting and now >= self._next_try:
            reason = attempt(self._channel, self.waiting[0])
            if reason:
                self._fail(reason, now)
            else:
                self.waiting.popleft()
                self._failures = 0

    def _fail(self, reason: str, now: float) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("%s", warning_of(self._channel, reason))
        if self._failures >= len(RETRY_SECONDS):
            self.waiting.popleft()
            self._failures = 0
            return
        self._next_try = now + RETRY_SECONDS[self._failures]
        self._failures += 1

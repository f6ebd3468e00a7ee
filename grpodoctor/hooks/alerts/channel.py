"""An alert, and the base class of the channels that carry it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from grpodoctor.errors import GrpodoctorError
from grpodoctor.monitor.alert_settings import ChannelSettings
from grpodoctor.rules.base import Severity

ALERT_VERSION = 1
"""Version of the JSON of an alert."""


class ChannelError(GrpodoctorError):
    """An alert was not delivered. The message contains no address, which may be a secret."""


@dataclass(frozen=True, slots=True)
class Alert:
    """A finding that is worth a message. Its texts are printable and have one line."""

    kind: str
    """`finding-raised`, `finding-escalated` or `finding-resolved`."""
    severity: Severity
    code: str
    name: str
    summary: str
    step: int
    onset_step: int
    run: str
    remedies: tuple[str, ...] = ()
    held_back: int = 0
    """Other findings that the rate limit holds back."""

    @property
    def title(self) -> str:
        """The subject, on one line."""
        verb = self.kind.removeprefix("finding-")
        return f"{self.severity} {self.code} {self.name} {verb} at step {self.step}"

    @property
    def text(self) -> str:
        """The message: the finding, the run, the remedies."""
        lines = [self.summary, f"Since step {self.onset_step} of {self.run}"]
        if self.remedies:
            lines.append(f"Remedies: {', '.join(self.remedies)} (grpodoctor remedy ID)")
        if self.held_back:
            lines.append(f"The rate limit holds back {self.held_back} other findings.")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The body of a generic webhook and the input of a command."""
        return {
            "schema_version": ALERT_VERSION,
            "kind": self.kind,
            "severity": self.severity,
            "code": self.code,
            "name": self.name,
            "summary": self.summary,
            "step": self.step,
            "onset_step": self.onset_step,
            "run": self.run,
            "remedies": list(self.remedies),
            "held_back": self.held_back,
            "title": self.title,
            "text": self.text,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Alert:
        """Inverse of `to_json`, for JSON that this package wrote."""
        names = cls.__dataclass_fields__
        fields = {name: value for name, value in data.items() if name in names}
        return cls(**{**fields, "remedies": tuple(data["remedies"])})


class Channel(ABC):
    """A destination of alerts. `send` may block for a bounded time; it runs in a thread.

    Args:
        settings: the channel's table in the settings file.
    """

    in_training: ClassVar[bool] = False
    """Whether it works only in the process of the training, where it must not block."""

    def __init__(self, settings: ChannelSettings) -> None:
        self.kind, self.options = settings.kind, settings.options

    @abstractmethod
    def send(self, alert: Alert) -> None:
        """Deliver an alert.

        Raises:
            ChannelError: if it was not delivered.
        """

    def close(self) -> None:
        """Release what the channel holds."""
        return

    def secret(self, option: str) -> str:
        """The value of the environment variable that an option names.

        Raises:
            ChannelError: if the variable is not set.
        """
        name = self.options[option]
        if value := os.environ.get(name, "").strip():
            return value
        raise ChannelError(f"the environment variable {name} is not set")

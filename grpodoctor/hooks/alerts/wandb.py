"""Weights & Biases: an alert of the run that the training has open."""

from __future__ import annotations

import sys
from typing import ClassVar

from grpodoctor.hooks.alerts.channel import Alert, Channel, ChannelError

LEVELS = {"info": "INFO", "warning": "WARN", "critical": "ERROR"}
_LONGEST_TITLE = 63


class WandbChannel(Channel):
    """Calls `wandb.run.alert` in the training; the package is not imported if it is not in use."""

    in_training: ClassVar[bool] = True

    def send(self, alert: Alert) -> None:
        """Deliver an alert."""
        run = getattr(sys.modules.get("wandb"), "run", None)
        if run is None:
            raise ChannelError("the training has no active W&B run")
        run.alert(alert.title[:_LONGEST_TITLE], alert.text, level=LEVELS[alert.severity])

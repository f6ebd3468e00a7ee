"""Trackio: an alert of the run that the training has open."""

from __future__ import annotations

import sys
from typing import ClassVar

from grpodoctor.hooks.alerts.channel import Alert, Channel, ChannelError
from grpodoctor.hooks.alerts.wandb import LEVELS


class TrackioChannel(Channel):
    """Calls `trackio.alert` in the training; the package is not imported if it is not in use."""

    in_training: ClassVar[bool] = True

    def send(self, alert: Alert) -> None:
        """Deliver an alert."""
        trackio = sys.modules.get("trackio")
        if trackio is None:
            raise ChannelError("the training does not use Trackio")
        if not hasattr(trackio, "alert"):
            raise ChannelError("this version of Trackio has no alerts")
        level = getattr(trackio.AlertLevel, LEVELS[alert.severity])
        try:
            trackio.alert(title=alert.title, text=alert.text, level=level)
        except RuntimeError:  # Trackio's for a missing call of init
            raise ChannelError("the training has no active Trackio run") from None

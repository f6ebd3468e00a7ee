"""Any service that accepts JSON."""

from __future__ import annotations

from grpodoctor.hooks.alerts.channel import Alert, Channel
from grpodoctor.hooks.alerts.http_post import post_json


class WebhookChannel(Channel):
    """Posts the JSON of an alert to the address in the variable `url-env`."""

    def send(self, alert: Alert) -> None:
        """Deliver an alert; the variable `authorization-env` is sent as that header."""
        headers = {}
        if "authorization-env" in self.options:
            headers["Authorization"] = self.secret("authorization-env")
        post_json(self.secret("url-env"), alert.to_json(), headers)

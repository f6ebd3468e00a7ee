"""Slack: an incoming webhook."""

from __future__ import annotations

from html import escape

from grpodoctor.hooks.alerts.channel import Alert, Channel
from grpodoctor.hooks.alerts.http_post import post_json


class SlackChannel(Channel):
    """Posts to the incoming webhook in the variable `url-env`."""

    def send(self, alert: Alert) -> None:
        """Deliver an alert. `<` is escaped, so a text cannot mention people or hide a link."""
        title, text = escape(alert.title, quote=False), escape(alert.text, quote=False)
        post_json(self.secret("url-env"), {"text": f"*{title}*\n{text}"})

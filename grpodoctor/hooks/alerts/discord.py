"""Discord: a webhook of a channel."""

from __future__ import annotations

from grpodoctor.hooks.alerts.channel import Alert, Channel
from grpodoctor.hooks.alerts.http_post import post_json

_LONGEST = 2000


class DiscordChannel(Channel):
    """Posts to the webhook in the variable `url-env`."""

    def send(self, alert: Alert) -> None:
        """Deliver an alert; mentions in its text have no effect."""
        content = f"**{alert.title}**\n{alert.text}"[:_LONGEST]
        body = {"content": content, "allowed_mentions": {"parse": []}}
        post_json(self.secret("url-env"), body)

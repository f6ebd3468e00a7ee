"""A command of the user's own."""

from __future__ import annotations

import subprocess

from grpodoctor.hooks.alerts.channel import Alert, Channel, ChannelError
from grpodoctor.support.safe_text import json_bytes
from grpodoctor.support.subprocesses import kill_group

TIMEOUT_SECONDS = 30.0


class CommandChannel(Channel):
    """Runs `command` without a shell, with the JSON of the alert on its standard input."""

    def send(self, alert: Alert) -> None:
        """Deliver an alert."""
        command = list(self.options["command"])
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own command, no shell
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        except OSError as error:
            raise ChannelError(f"the command cannot be started: {error.strerror}") from None
        self._finish(process, alert)

    @staticmethod
    def _finish(process: subprocess.Popen[bytes], alert: Alert) -> None:
        try:
            process.communicate(json_bytes(alert.to_json()), timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            kill_group(process)
            process.communicate()
            raise ChannelError(f"the command took over {TIMEOUT_SECONDS:g} seconds") from None
        if process.returncode:
            raise ChannelError(f"the command ended with code {process.returncode}")

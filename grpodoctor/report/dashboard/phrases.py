"""Wording of the dashboard's pages."""

from __future__ import annotations

import time

from grpodoctor.monitor.dashboard.observed_run import RunState, RunView
from grpodoctor.report.view import Tone
from grpodoctor.support.numbers import count_of

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_STATES: dict[RunState, tuple[str, Tone | None]] = {
    "waiting": ("waiting for the first step", None),
    "reading": ("reading", None),
    "live": ("live", "good"),
    "stopped": ("stopped", "warning"),
    "finished": ("finished", None),
    "gone": ("the files have vanished", "critical"),
    "unreadable": ("cannot be read", "critical"),
}


def state_phrase(view: RunView) -> tuple[str, Tone | None]:
    """The state of a run in a few words, and its color."""
    text, tone = _STATES[view.state]
    parts = [text]
    if view.data is not None:
        run = view.data.report.run
        parts.append(f"step {run.last_step}")
        if view.state == "live" and view.steps_per_minute:
            parts.append(f"{view.steps_per_minute:.3g} steps/min")
        if view.state in {"stopped", "gone"} and view.written:
            parts.append(f"last step {ago(view.written)}")
    return " · ".join(parts), tone


def ago(moment: float) -> str:
    """How long ago a moment was, in its largest unit."""
    seconds = max(0.0, time.time() - moment)
    for unit, length in (("day", _DAY), ("hour", _HOUR), ("minute", _MINUTE)):
        if seconds >= length:
            return f"{count_of(int(seconds // length), unit)} ago"
    return "just now"

"""A higher length limit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Readings, Remedy, Requirement, number
from grpodoctor.vocabulary.knobs import Setting

STILL_TRUNCATED = 0.02
"""Share of responses that may remain truncated; most healthy runs have fewer."""

MOSTLY_TRUNCATED = 0.5
"""Share of truncated responses above which not even the median of their lengths is known."""

LEAST, MOST = 1.25, 2.0
"""Smallest and largest factor: less is noise, and more needs another look at the responses, and a
machine whose memory and time allow it."""


class LongerLimit(Remedy):
    """Restart with up to twice the length limit.

    What it does:
        Gives truncated but sound reasoning the room that it needs.

    When it applies:
        Responses are truncated although they reason soundly to the end.

    What it costs:
        Memory and sampling time, up to twice as much of both. It does not help against responses
        that loop or pad: read a few truncated ones first.

    What it overlaps:
        Overlong masking and the soft overlong punishment: with a sufficient limit, neither is
        needed.

    How it is judged:
        By a person, after the restart: fewer responses are truncated, and the reward rises.

    References:
        DeepScaleR 2025, Surpassing O1-Preview with a 1.5B Model by Scaling RL (raising the limit
        in stages).
    """

    id = "longer-limit"
    title = "Restart with a higher length limit"
    applicability = "suggest"
    in_flight = False
    needs_memory = True
    slots = ("truncation",)
    target = Criterion("length/truncated_rate", "down")
    paper = "DeepScaleR 2025"
    how = (
        "Read a few truncated responses. If they reason soundly to the end, restart from the last "
        "checkpoint with up to twice the limit, and look at the truncated share again. If they "
        "loop or pad, use soft-overlong instead."
    )
    when_unknown: ClassVar[Mapping[str, Setting]] = {"max_length": "<current value x 2>"}
    acts_on = Requirement(
        ("length/truncated_rate",), "no response is truncated", wanted="responses are truncated"
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `max_length` to twice its value if it is known."""
        limit = number(knobs, "max_length")
        return {} if limit is None else {"max_length": int(2 * limit)}

    def tuned(self, change: dict[str, Setting], readings: Readings) -> dict[str, Setting]:
        """Set the limit at which 2 % of the responses are still truncated.

        Assumes that a response ends at each token with the same probability, so that the share of
        responses that reach a length falls exponentially. If the share is unknown or 1, an unknown
        limit becomes twice the longest response.
        """
        longest = readings.get("length/max", 0.0)
        if "max_length" not in change or not 0 < longest < math.inf:
            return change
        truncated = readings.get("length/truncated_rate", 1.0)
        if 0 < truncated < 1:
            factor = math.log(STILL_TRUNCATED) / math.log(truncated)
        elif isinstance(change["max_length"], str):
            factor = 2.0
        else:
            return change
        limit = longest * min(MOST, max(LEAST, factor))
        if not math.isfinite(limit):  # the longest response is close to the largest number
            return change
        return {**change, "max_length": 64 * math.ceil(limit / 64)}

    def remark(self, change: Mapping[str, Setting], numbers: Mapping[str, float]) -> str:
        """That the new limit is a first try where most responses are truncated."""
        truncated = numbers.get("length/truncated_rate", 0.0)
        if "max_length" not in change or truncated <= MOSTLY_TRUNCATED:
            return ""
        return f"{change['max_length']} is a first try"

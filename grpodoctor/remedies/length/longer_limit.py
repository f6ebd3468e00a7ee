"""A higher length limit."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Criterion, Remedy, number
from grpodoctor.vocabulary.knobs import Setting


class LongerLimit(Remedy):
    """Restart with twice the length limit.

    What it does:
        Gives truncated but sound reasoning the room that it needs.

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
    slots = ("truncation",)
    target = Criterion("length/truncated_rate", "down")
    paper = "DeepScaleR 2025"
    how = (
        "Read a few truncated responses. If they reason soundly to the end, restart from the last "
        "checkpoint with twice the limit. If they loop or pad, use soft-overlong instead."
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `max_length` to twice its value if it is known."""
        limit = number(knobs, "max_length")
        return {} if limit is None else {"max_length": int(2 * limit)}

"""Soft overlong punishment: a ramp before the length limit."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch, number
from grpodoctor.vocabulary.knobs import Setting

BUFFER_SHARE = 5
"""The buffer is a fifth of the limit: 4096 of 20480 tokens in DAPO, section 4.1."""


class SoftOverlong(Remedy):
    """Subtract from the reward, up to 1, over the last fifth of the length budget.

    What it does:
        Within a buffer before the limit the reward falls linearly to one less at the limit itself,
        so that the policy learns to finish before it is cut and sees the edge coming.

    What it costs:
        It changes the reward. With a tight budget it shortens reasoning that needed its length;
        where the reward's scale is not 0..1, a punishment of 1 may be far too much or too little.

    What it overlaps:
        Overlong filtering, which takes the same responses out of the loss.

    How it is judged:
        Fewer responses are cut. Guard: the accuracy does not fall (the reward falls by design).

    References:
        DAPO: An Open-Source LLM Reinforcement Learning System at Scale, arXiv 2503.14476,
        section 3.4 and Eq. 13.
    """

    id = "soft-overlong"
    title = "Punish length softly before the limit"
    applicability = "unsafe"
    in_flight = True
    slots = ("truncation",)
    target = Watch("length/truncated_rate", "down")
    guards = (Watch("accuracy/train", "down", 0.1),)
    paper = "DAPO, arXiv 2503.14476"

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `overlong` and the buffer's width, where nothing is done and the limit is known."""
        limit = number(knobs, "max_length")
        if limit is None or knobs.get("overlong") != "none" or "overlong_buffer" not in knobs:
            return {}
        return {
            "overlong": "soft-punishment",
            "overlong_buffer": max(1, round(limit / BUFFER_SHARE)),
        }

"""Soft overlong punishment: a penalty that grows toward the length limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Readings, Remedy, Requirement, number
from grpodoctor.vocabulary.knobs import Setting

BUFFER_SHARE = 5
"""The buffer is a fifth of the limit: 4096 of 20480 tokens in DAPO, section 4.1."""


class SoftOverlong(Remedy):
    """Subtract up to 1 from the reward over the last fifth of the length budget.

    What it does:
        Within a buffer before the limit the reward falls linearly, by 1 at the limit itself, so
        that the policy learns to finish before it is truncated.

    When it applies:
        Responses are truncated because they ramble, and the reward is in [0, 1] or [-1, 1].

    What it costs:
        It changes the reward. With a tight limit, it also shortens reasoning that has to be long.
        If the reward is not in [0, 1], a punishment of 1 may be far too much or too little.

    What it overlaps:
        Overlong masking, which takes the same responses out of the loss.

    How it is judged:
        Fewer responses are truncated. Guard: the accuracy does not fall (the reward falls by
        design).

    References:
        DAPO: An Open-Source LLM Reinforcement Learning System at Scale, arXiv 2503.14476,
        section 3.4 and Eq. 13.
    """

    id = "soft-overlong"
    title = "Punish length gradually before the limit"
    applicability = "unsafe"
    in_flight = True
    slots = ("truncation",)
    target = Criterion("length/truncated_rate", "down")
    guards = (Criterion("accuracy/train", "down", 0.1),)
    paper = "DAPO, arXiv 2503.14476"
    alternatives = ("repetition-penalty",)
    when_unknown: ClassVar[Mapping[str, Setting]] = {"overlong_buffer": "<limit / 5>"}
    acts_on = Requirement(
        ("length/truncated_rate",), "no response is truncated", wanted="responses are truncated"
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `overlong` and its buffer if truncation is not handled and the limit is known."""
        limit = number(knobs, "max_length")
        if limit is None or knobs.get("overlong") != "none" or "overlong_buffer" not in knobs:
            return {}
        return {
            "overlong": "soft-punishment",
            "overlong_buffer": max(1, round(limit / BUFFER_SHARE)),
        }

    def tuned(self, change: dict[str, Setting], readings: Readings) -> dict[str, Setting]:
        """Take a fifth of the longest response where the limit is unknown."""
        longest, truncated = readings.get("length/max"), readings.get("length/truncated_rate")
        if not isinstance(change.get("overlong_buffer"), str) or not longest or not truncated:
            return change
        return {**change, "overlong_buffer": max(1, round(longest / BUFFER_SHARE))}

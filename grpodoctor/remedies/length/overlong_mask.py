"""Overlong masking: truncated responses are left out of the loss."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Criterion, Remedy, Requirement
from grpodoctor.vocabulary.knobs import Setting


class OverlongMask(Remedy):
    """Leave truncated responses out of the loss.

    What it does:
        A truncated response has no answer and is graded as incorrect, however sound its reasoning
        was. Without it in the loss, that noise no longer teaches the policy to avoid sound
        reasoning.

    When it applies:
        Responses are truncated, and their reward says nothing about them.

    What it costs:
        The policy is no longer pressed to finish: responses may grow until more of them are
        truncated. Padding and loops go unpunished as well as sound reasoning.

    What it overlaps:
        The soft overlong punishment, which treats truncation the opposite way.

    How it is judged:
        The reward rises. Guard: the truncated share does not grow much.

    References:
        DAPO: An Open-Source LLM Reinforcement Learning System at Scale, arXiv 2503.14476,
        section 3.4.
    """

    id = "overlong-mask"
    title = "Leave truncated responses out of the loss"
    applicability = "unsafe"
    in_flight = True
    slots = ("truncation",)
    target = Criterion("reward/mean", "up")
    more_targets = (Criterion("accuracy/heldout", "up"),)
    guards = (Criterion("length/truncated_rate", "up", 0.5, slack=0.05),)
    paper = "DAPO, arXiv 2503.14476"
    acts_on = Requirement(
        ("length/truncated_rate",), "no response is truncated", wanted="responses are truncated"
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `overlong` if truncated responses are not handled yet."""
        return {"overlong": "mask"} if knobs.get("overlong") == "none" else {}

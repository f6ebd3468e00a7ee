"""Overlong filtering: truncated responses bear no loss."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch
from grpodoctor.vocabulary.knobs import Setting


class OverlongMask(Remedy):
    """Take responses that were cut by the length limit out of the loss.

    What it does:
        A response that was cut has no answer and is marked wrong, however sound its reasoning was.
        Without it in the loss, that noise no longer teaches the policy to avoid sound reasoning.

    What it costs:
        The pressure to finish is gone: responses may grow until more of them are cut. It hides
        padding and loops as well as it hides bad luck.

    What it overlaps:
        The soft overlong punishment, which answers truncation the other way.

    How it is judged:
        The reward rises. Guard: not many more responses are cut than before.

    References:
        DAPO: An Open-Source LLM Reinforcement Learning System at Scale, arXiv 2503.14476,
        section 3.4.
    """

    id = "overlong-mask"
    title = "Leave truncated responses out of the loss"
    applicability = "unsafe"
    in_flight = True
    slots = ("truncation",)
    target = Watch("reward/mean", "up")
    also = (Watch("accuracy/heldout", "up"),)
    guards = (Watch("length/truncated_rate", "up", 0.5, slack=0.05),)
    paper = "DAPO, arXiv 2503.14476"

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `overlong`, where nothing is done about truncated responses."""
        return {"overlong": "mask"} if knobs.get("overlong") == "none" else {}

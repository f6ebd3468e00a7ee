"""A sampler that computes its routers and its head as the learner does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Remedy, Watch
from grpodoctor.vocabulary.knobs import Setting


class HigherPrecisionSampler(Remedy):
    """Restart the sampler with routers and output head unquantised, in the learner's precision.

    What it does:
        A router decides by the order of a few logits, so that the smallest error sends a token to
        another expert; the head turns errors of logits into errors of probabilities directly. Both
        are a small part of the weights, and nearly all of what precision costs there can be had
        back without giving up quantised experts.

    What it costs:
        A little memory and speed. Where the difference has another cause, nothing is gained: a
        probe tells.

    What it overlaps:
        Routing replay, which makes the sampler's choice binding instead of right; corrections,
        which weigh what difference is left.

    How it is judged:
        By a person, after the restart: engines flip fewer experts and differ by less.

    References:
        MiniMax-M1, arXiv 2506.13585, section 3.2 (an output head in float32 brings the correlation
        of the two probabilities from .987 to .997).
    """

    id = "higher-precision-sampler"
    title = "Give the sampler's routers and head the learner's precision"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Watch("experts/churn_engine", "down")
    also = (Watch("mismatch/prob_diff_mean", "down"),)
    paper = "MiniMax-M1, arXiv 2506.13585"
    how = (
        "Leave the router (`mlp.gate`) and `lm_head` out of the quantisation (`ignore` in "
        "compressed-tensors checkpoints), use the learner's dtype for the rest if memory allows, "
        "and compare again with `grpodoctor probe`."
    )

    restart_with: ClassVar[Mapping[str, Setting]] = {
        "float32_head": True,
        "unquantized_sampler": True,
    }

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:  # noqa: ARG002 - a person acts
        """Nothing: no knob stands for it."""
        return {}

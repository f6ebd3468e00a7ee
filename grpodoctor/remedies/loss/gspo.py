"""Ratio and clip of whole responses."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch
from grpodoctor.vocabulary.knobs import Setting

CLIP_LOW, CLIP_HIGH = 3e-4, 4e-4
"""The paper's: the geometric mean of many ratios is close to 1."""

SETTINGS: dict[str, Setting] = {
    "loss": "gspo",
    "clip_low": CLIP_LOW,
    "clip_high": CLIP_HIGH,
    "aggregation": "sequence-mean",
}
_TOKEN_WEIGHTS = frozenset({"tis_token", "mis_token", "icepop", "geo_mask"})


class Gspo(Remedy):
    """Take the ratio, the clip and the reward at one level, the response's: GSPO.

    What it does:
        An expert that changes makes the ratio of a single token jump, and the clip then stops
        tokens for their routing. The geometric mean over a response hardly notices a few of them.
        Both clips are set to the paper's, which are a thousandth of those for single tokens.

    What it costs:
        Whole responses lose their gradient, far more of them than tokens did. It does not make up
        for a sampler that differs from the learner. Other work found wider clips, 4e-3 to 5e-3, to
        do better, and some runs that diverged.

    What it overlaps:
        Routing replay, which removes the flips themselves. Clip-higher and all that bounds ratios
        of tokens. Corrections that weigh single tokens have no place in it: where one acts, the
        form for tokens, gspo_token, is taken, whose value and gradient are the same.

    How it is judged:
        The reward rises, or what the updates change in the routing falls. Guard: the reward does
        not fall.

    References:
        Group Sequence Policy Optimization, arXiv 2507.18071; The Art of Scaling Reinforcement
        Learning Compute for LLMs, arXiv 2510.13786 (the wider clips).
    """

    id = "gspo"
    title = "GSPO: ratio and clip of whole responses"
    applicability = "unsafe"
    in_flight = True
    slots = ("trust-region", "denominator", "expert-routing")
    target = Watch("reward/mean", "up")
    also = (Watch("experts/churn_update", "down"),)
    guards = (Watch("reward/mean", "down", 0.1),)
    paper = "GSPO, arXiv 2507.18071"

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set the loss, its clips and its denominator, where PPO's clip of tokens is in force."""
        known = all(name in knobs for name in SETTINGS)
        replayed = knobs.get("routing_replay", "none") != "none"
        if not known or replayed or knobs["loss"] != "ppo_clip":
            return {}
        by_token = knobs.get("correction") in _TOKEN_WEIGHTS
        wanted = {**SETTINGS, "loss": "gspo_token"} if by_token else SETTINGS
        return {name: value for name, value in wanted.items() if knobs[name] != value}

"""Clip-higher: a wider upper clip for tokens that the policy is only beginning to like."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch, number
from grpodoctor.vocabulary.knobs import Setting

CLIP_HIGH = 0.28
"""The setting of DAPO, section 4.1."""


class ClipHigher(Remedy):
    """Raise the upper clip to 0.28 and leave the lower one where it is.

    What it does:
        A token of probability 0.01 may rise to 0.012 under an upper clip of 0.2, one of 0.9 to
        1.08: the symmetric clip holds back just the unlikely tokens that exploration is made of.
        A higher upper bound lets them rise further at each batch.

    What it costs:
        Larger updates on tokens with a positive advantage. In runs with many updates per batch the
        clip is what keeps the policy near the data, so watch the ratio.

    What it overlaps:
        Everything that replaces the clip (GSPO, GMPO, CISPO, SAPO) or counters low entropy by other
        means (entropy bonus, a higher temperature, Clip-Cov, KL-Cov).

    How it is judged:
        Entropy rises, or the share of tokens clipped on the high side falls. Guard: the reward does
        not fall. With one update per batch the ratio is 1, nothing is clipped, and it is not given.

    References:
        DAPO: An Open-Source LLM Reinforcement Learning System at Scale, arXiv 2503.14476,
        section 3.1.
    """

    id = "clip-higher"
    title = "Raise the upper clip to 0.28"
    applicability = "safe"
    in_flight = True
    slots = ("trust-region", "exploration")
    target = Watch("entropy/mean", "up")
    also = (Watch("clip/high_rate", "down"),)
    guards = (Watch("reward/mean", "down", 0.1), Watch("ratio/max", "up", 1.0, slack=1.0))
    paper = "DAPO, arXiv 2503.14476"

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `clip_high`, where it is lower and the clip can act at all."""
        clip_high = number(knobs, "clip_high")
        if clip_high is None or clip_high >= CLIP_HIGH:
            return {}
        idle = knobs.get("updates_per_batch") == 1 and knobs.get("old_logprobs") != "sampler"
        if idle or knobs.get("loss", "ppo_clip") != "ppo_clip":
            return {}
        return {"clip_high": CLIP_HIGH}

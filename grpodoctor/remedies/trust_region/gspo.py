"""GSPO: importance ratio and clip of whole responses."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Criterion, Readings, Remedy, number
from grpodoctor.vocabulary.knobs import Setting

CLIP_LOW, CLIP_HIGH = 3e-4, 4e-4
"""Bounds of the paper: the geometric mean of many ratios is close to 1."""

WIDEST = 0.05
"""Ten times the widest bound known to work, 5e-3 (arXiv 2510.13786)."""

_BOUNDS: dict[str, Setting] = {"clip_low": CLIP_LOW, "clip_high": CLIP_HIGH}

SETTINGS: dict[str, Setting] = {"loss": "gspo", **_BOUNDS, "aggregation": "sequence-mean"}
_TOKEN_WEIGHTS = frozenset({"tis_token", "mis_token", "icepop", "geo_mask"})


class Gspo(Remedy):
    """Compute the ratio and the clip per response, like the reward: GSPO.

    What it does:
        A changed expert makes the ratio of a single token jump, and the clip then drops tokens
        because of their routing. The geometric mean over a response hardly changes with a few
        changed experts. The remedy sets both clip bounds to those of the paper, which are about a
        thousandth of the bounds for single tokens.

    When it applies:
        The ratios of single tokens jump, as in a mixture of experts, and the rewards judge whole
        responses.

    What it costs:
        Whole responses lose their gradient, and a far larger share of them than of tokens before.
        It does not correct a sampler that differs from the learner. Other work found that wider
        bounds, 4e-3 to 5e-3, do better and that some runs diverge.

    What it overlaps:
        Routing replay, which removes the flips themselves. Clip-higher and other bounds on token
        ratios. GSPO cannot use corrections that weight single tokens: if one is in force, the
        remedy uses gspo_token, the token-level form with the same value and gradient.

    How it is judged:
        The reward rises, or the updates change fewer experts. Guard: the reward does not fall.

    References:
        Group Sequence Policy Optimization, arXiv 2507.18071; The Art of Scaling Reinforcement
        Learning Compute for LLMs, arXiv 2510.13786 (the wider clips).
    """

    id = "gspo"
    title = "Use GSPO: ratio and clip of whole responses"
    applicability = "unsafe"
    in_flight = True
    slots = ("trust-region", "denominator", "expert-routing")
    target = Criterion("reward/mean", "up")
    more_targets = (Criterion("experts/churn_update", "down"),)
    guards = (Criterion("reward/mean", "down", 0.1),)
    paper = "GSPO, arXiv 2507.18071"
    alternatives = ("gmpo", "luspo")

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set the loss, its clip bounds and its denominator if PPO's token clip is in force.

        If GSPO is in force with the clip of single tokens, set the bounds alone.
        """
        is_known = all(name in knobs for name in SETTINGS)
        is_replayed = knobs.get("routing_replay", "none") != "none"
        if is_known and knobs["loss"] in ("gspo", "gspo_token"):
            widths = [number(knobs, name) or 0.0 for name in _BOUNDS]
            return dict(_BOUNDS) if max(widths) > WIDEST else {}
        if not is_known or is_replayed or knobs["loss"] != "ppo_clip":
            return {}
        loss = "gspo_token" if knobs.get("correction") in _TOKEN_WEIGHTS else "gspo"
        settings = {**SETTINGS, "loss": loss}
        return {name: value for name, value in settings.items() if knobs[name] != value}

    def obstacle(self, knobs: Mapping[str, Setting], readings: Readings) -> str:
        """Routing replay removes the flips already, or another loss is in force."""
        loss = knobs.get("loss", "ppo_clip")
        if loss not in ("ppo_clip", "gspo", "gspo_token"):
            return f"the loss {loss} replaces the clip already"
        if knobs.get("routing_replay", "none") != "none" and "experts/churn_update" in readings:
            return "routing replay removes the flips already"
        return ""

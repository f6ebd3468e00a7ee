"""DCPO: clip bounds that depend on the token's probability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy, Requirement
from grpodoctor.vocabulary.knobs import Setting


class Dcpo(Remedy):
    """Widen the clip for unlikely tokens: DCPO.

    What it does:
        A fixed upper bound of 1.2 lets a token of probability 0.01 rise to 0.012 only. DCPO's
        bounds depend on the token's old probability: wide for unlikely tokens, narrow for likely
        ones, with the ratio never above 10. Its advantages are smoothed over all visits of a
        prompt, so groups without variance contribute too.

    When it applies:
        Unlikely tokens are clipped at the upper bound, and entropy falls.

    What it costs:
        Wider bounds admit larger steps on rare tokens. Smoothed advantages need the history of each
        prompt.

    What it overlaps:
        Clip-higher, which widens the bound for all tokens; CISPO, SAPO, DPPO; dynamic sampling, for
        its smoothed advantages.

    How it is judged:
        Fewer tokens are clipped, or the reward rises. Guard: the reward does not fall.

    References:
        DCPO: Dynamic Clipping Policy Optimization, arXiv 2509.02333.
    """

    id = "dcpo"
    title = "Use DCPO: wider clip for unlikely tokens"
    applicability = "unsafe"
    in_flight = True
    slots = ("trust-region", "exploration", "advantage", "denominator")
    target = Criterion("clip/high_rate", "down")
    more_targets = (Criterion("reward/mean", "up"),)
    guards = (Criterion("reward/mean", "down", 0.1),)
    paper = "DCPO, arXiv 2509.02333"
    settings: ClassVar[Mapping[str, Setting]] = {
        "loss": "dcpo",
        "clip_low": 0.16,
        "clip_high": 0.2,
        "aggregation": "sequence-sum-token-mean",
        "advantage": "dcpo_sas",
    }
    acts_on = Requirement(
        ("clip/high_rate",),
        "no token is clipped at the upper bound",
        wanted="tokens are clipped at the upper bound",
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set the loss, its bounds, denominator and advantages if PPO's token clip is in force."""
        return super().change(knobs) if knobs.get("loss") == "ppo_clip" else {}

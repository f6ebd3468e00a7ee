"""CISPO: a bound on the importance weight instead of a clip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Readings, Remedy, Requirement, number
from grpodoctor.vocabulary.knobs import Setting

CAP = 4.0
"""Distance of the largest weight from 1: published caps are 4 to 8."""


class Cispo(Remedy):
    """Bound the weight of each token at 5 and keep its gradient: CISPO.

    What it does:
        PPO's clip removes the gradient of tokens whose ratio left the bounds. Those are often rare
        tokens that start a new line of reasoning, and they are lost for the whole batch. CISPO
        bounds the weight and keeps the gradient, so every token contributes at every update.

    When it applies:
        Tokens are clipped at the upper bound, or several updates are made per batch. With one
        update, no weight differs from 1.

    What it costs:
        Nothing stops a token that was already raised; the bound limits its weight only. With a
        mixture of experts and no routing replay, published runs collapsed.

    What it overlaps:
        PPO's clip, clip-higher, SAPO, GSPO, DPPO. Anchored on the sampler, it includes the engine
        correction.

    How it is judged:
        The reward rises, or entropy stays higher. Guard: the reward does not fall.

    References:
        MiniMax-M1, arXiv 2506.13585, section 3.1; The Art of Scaling Reinforcement Learning Compute
        for LLMs, arXiv 2510.13786 (caps of 4 to 8 make no difference).
    """

    id = "cispo"
    title = "Use CISPO: bounded weights, every token keeps its gradient"
    applicability = "unsafe"
    in_flight = True
    slots = ("trust-region", "exploration", "denominator")
    target = Criterion("reward/mean", "up")
    more_targets = (Criterion("entropy/mean", "up"),)
    guards = (Criterion("reward/mean", "down", 0.1),)
    paper = "MiniMax-M1, arXiv 2506.13585"
    alternatives = ("sapo", "vespo")
    settings: ClassVar[Mapping[str, Setting]] = {
        "loss": "cispo",
        "clip_low": 1.0,
        "clip_high": 4.0,
        "aggregation": "token-mean",
    }
    acts_on = Requirement(
        ("clip/high_rate", "clip/low_rate"), "no token is clipped", wanted="tokens are clipped"
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set the loss, its bounds and its denominator if PPO's token clip is in force.

        If CISPO is in force with a cap below 2, set the cap alone.
        """
        cap = number(knobs, "clip_high")
        if knobs.get("loss") == "cispo" and cap is not None:
            return {"clip_high": CAP} if cap < 1 else {}
        return super().change(knobs) if knobs.get("loss") == "ppo_clip" else {}

    def obstacle(self, knobs: Mapping[str, Setting], readings: Readings) -> str:
        """Another loss replaces the clip already."""
        loss = knobs.get("loss", "ppo_clip")
        if loss not in ("ppo_clip", "cispo"):
            return f"the loss {loss} replaces the clip already"
        return super().obstacle(knobs, readings)

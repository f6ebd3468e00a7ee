"""Clip-Cov: no gradient for a few tokens of high covariance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class ClipCov(Remedy):
    """Detach a few tokens whose probability and advantage are both high: Clip-Cov.

    What it does:
        Entropy falls mostly through very few tokens that are already likely and have a high
        advantage. Clip-Cov draws 0.02 % of all tokens from those with a covariance between 1 and 5
        and detaches them.

    When it applies:
        Entropy falls within the first hundred steps.

    What it costs:
        The share is a setting that depends on the model. PPO's clip is opened to 1.0.

    What it overlaps:
        Clip-higher, an entropy bonus, KL-Cov, forking tokens: choose one.

    How it is judged:
        Entropy stays higher. Guard: the reward does not fall.

    References:
        The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models, arXiv
        2505.22617.
    """

    id = "clip-cov"
    title = "Use Clip-Cov: detach tokens of high covariance"
    applicability = "unsafe"
    in_flight = True
    slots = ("exploration", "trust-region")
    target = Criterion("entropy/mean", "up")
    guards = (Criterion("reward/mean", "down", 0.1), Criterion("ratio/max", "up", 1.0, slack=1.0))
    paper = "arXiv 2505.22617"
    settings: ClassVar[Mapping[str, Setting]] = {
        "loss": "clip_cov",
        "clip_low": 1.0,
        "clip_high": 1.0,
        "aggregation": "token-mean",
    }

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set the loss, its bounds and its denominator if PPO's token clip is in force."""
        return super().change(knobs) if knobs.get("loss") == "ppo_clip" else {}

"""A lower learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Readings, Remedy, number, round_to_two_digits
from grpodoctor.vocabulary.knobs import Setting

FLOOR = 1e-7
"""A tenth of the smallest rate in common recipes; below it, bf16 weights hardly change."""


class LowerLearningRate(Remedy):
    """Divide the learning rate by three.

    What it does:
        Each optimizer step moves the policy less, so a batch is still close to on-policy at its
        last update. Steps that are too large show at once: ratios and the divergence from the old
        policy are high from the first step on.

    When it applies:
        Ratios, the KL to the old policy or the gradient norm are high from the first update of a
        batch on.

    What it costs:
        Slower learning. It does not restore what the policy has lost; resume from a checkpoint for
        that.

    What it overlaps:
        Fewer updates per batch, which also reduces how far the policy moves.

    How it is judged:
        The divergence from the old policy falls, or the reward rises. Guard: the reward does not
        fall.

    References:
        PPO, arXiv 1707.06347, appendix A, Table 4 (a step size that follows the divergence from the
        old policy).
    """

    id = "lower-learning-rate"
    title = "Divide the learning rate by three"
    applicability = "safe"
    in_flight = True
    slots = ("step-size",)
    target = Criterion("kl/old_policy/k3", "down")
    more_targets = (Criterion("ratio/max", "down"), Criterion("reward/mean", "up"))
    guards = (Criterion("reward/mean", "down", 0.1),)
    paper = "PPO, arXiv 1707.06347"
    alternatives = ("larger-batch",)
    when_unknown: ClassVar[Mapping[str, Setting]] = {"learning_rate": "<current value / 3>"}

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `learning_rate` if it is known and stays above the floor."""
        rate = number(knobs, "learning_rate")
        if rate is None or rate / 3 < FLOOR:
            return {}
        return {"learning_rate": round_to_two_digits(rate / 3)}

    def tuned(self, change: dict[str, Setting], readings: Readings) -> dict[str, Setting]:
        """Take a third of the logged rate where the setting is unknown."""
        rate = readings.get("optimizer/learning_rate")
        if not isinstance(change.get("learning_rate"), str) or not rate or rate / 3 < FLOOR:
            return change
        return {**change, "learning_rate": round_to_two_digits(rate / 3)}

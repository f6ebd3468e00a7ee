"""A higher learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Readings, Remedy, number, round_to_two_digits
from grpodoctor.vocabulary.knobs import Setting

CEILING = 1e-4
"""Ten times the rate of usual full fine-tuning recipes, and the usual rate of LoRA adapters."""


class RaiseLearningRate(Remedy):
    """Multiply the learning rate by three.

    What it does:
        If the policy hardly moves from batch to batch although the gradient is healthy, each step
        is too small to matter, and the reward stays flat.

    When it applies:
        The divergence from the old policy and the clipped share are near 0, the gradient norm is
        not, and the reward does not rise.

    What it costs:
        Steps that are too large end a run. Raise it once, and watch the KL.

    What it overlaps:
        More updates per batch; float32 weights, if updates are lost in rounding instead.

    How it is judged:
        The divergence from the old policy rises a little, and the reward rises. Guards: the reward
        does not fall, and the ratio stays bounded.

    References:
        PPO, arXiv 1707.06347, appendix A, Table 4 (a step size that follows the divergence).
    """

    id = "raise-learning-rate"
    title = "Multiply the learning rate by three"
    applicability = "safe"
    in_flight = True
    slots = ("step-size",)
    target = Criterion("reward/mean", "up")
    more_targets = (Criterion("kl/old_policy/k3", "up"),)
    guards = (Criterion("reward/mean", "down", 0.1), Criterion("ratio/max", "up", 1.0, slack=1.0))
    paper = "PPO, arXiv 1707.06347"
    when_unknown: ClassVar[Mapping[str, Setting]] = {"learning_rate": "<current value x 3>"}

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `learning_rate` if it is known and stays below the ceiling."""
        rate = number(knobs, "learning_rate")
        if rate is None or rate <= 0 or rate * 3 > CEILING:
            return {}
        return {"learning_rate": round_to_two_digits(rate * 3)}

    def tuned(self, change: dict[str, Setting], readings: Readings) -> dict[str, Setting]:
        """Take three times the logged rate where the setting is unknown."""
        rate = readings.get("optimizer/learning_rate")
        if not isinstance(change.get("learning_rate"), str) or not rate or rate * 3 > CEILING:
            return change
        return {**change, "learning_rate": round_to_two_digits(rate * 3)}

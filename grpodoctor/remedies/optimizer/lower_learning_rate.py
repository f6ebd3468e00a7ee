"""A third of the learning rate."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch, number, round_figure
from grpodoctor.vocabulary.knobs import Setting

FLOOR = 1e-7
"""A tenth of the smallest rate in common recipes; below it weights in bf16 hardly move at all."""


class LowerLearningRate(Remedy):
    """Divide the learning rate by three.

    What it does:
        Each optimizer step moves the policy less, so that the data of a batch still describes the
        policy that its last update acts on. Steps that are too large show at once: ratios and the
        divergence from the old policy are high from the first step on.

    What it costs:
        Slower learning. It does not bring back what was unlearned: for that, go to a checkpoint.

    What it overlaps:
        Fewer updates per batch, which reduces the same movement.

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
    target = Watch("kl/old_policy/k3", "down")
    also = (Watch("ratio/max", "down"), Watch("reward/mean", "up"))
    guards = (Watch("reward/mean", "down", 0.1),)
    paper = "PPO, arXiv 1707.06347"

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `learning_rate`, where it is known and stays above the floor."""
        rate = number(knobs, "learning_rate")
        if rate is None or rate / 3 < FLOOR:
            return {}
        return {"learning_rate": round_figure(rate / 3)}

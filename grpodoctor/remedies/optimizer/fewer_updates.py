"""Fewer optimizer steps on each rollout batch."""

from __future__ import annotations

import math
from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch, number
from grpodoctor.vocabulary.knobs import Setting


class FewerUpdates(Remedy):
    """Take about the square root of the optimizer steps per batch: 4 instead of 16.

    What it does:
        Each further update on the same batch is taken on older data. The clip stops single tokens,
        not the sum of many small steps. Fewer, larger mini-batches keep the policy near the data.

    What it costs:
        Less learning per rollout, which is the expensive part. The number is always a divisor of
        the present one, so that mini-batches stay whole.

    What it overlaps:
        A lower learning rate, which reduces the same movement.

    How it is judged:
        The divergence from the old policy falls, or the largest ratio does. Guard: the reward does
        not fall.

    References:
        Stabilizing Reinforcement Learning with LLMs, arXiv 2512.01374 (which tells staleness, from
        several updates on one batch, apart from the gap between engines).
    """

    id = "fewer-updates"
    title = "Take fewer optimizer steps per batch"
    applicability = "safe"
    in_flight = True
    slots = ("step-size",)
    target = Watch("kl/old_policy/k3", "down")
    also = (Watch("ratio/max", "down"), Watch("reward/mean", "up"))
    guards = (Watch("reward/mean", "down", 0.1),)
    paper = "Stabilizing Reinforcement Learning with LLMs, arXiv 2512.01374"

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `updates_per_batch` to its largest divisor that is no larger than its root."""
        updates = number(knobs, "updates_per_batch")
        if updates is None or updates < 2:
            return {}
        whole = int(updates)
        fewer = max(each for each in range(1, math.isqrt(whole) + 1) if whole % each == 0)
        return {"updates_per_batch": fewer}

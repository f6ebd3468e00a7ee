"""Fewer optimizer steps per rollout batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy, Requirement, number
from grpodoctor.vocabulary.knobs import Setting


class FewerUpdates(Remedy):
    """Reduce the optimizer steps per batch to about their square root: 4 instead of 16.

    What it does:
        Each further update on the same batch uses samples of an older policy. The clip stops single
        tokens, but not the sum of many small steps. Fewer, larger mini-batches keep the policy near
        the data.

    When it applies:
        Several updates are made on one batch, and ratios or the KL to the old policy are high.

    What it costs:
        Less learning per rollout, and rollouts are the expensive part. The new number always
        divides the old one, so mini-batches keep equal sizes.

    What it overlaps:
        A lower learning rate, which also reduces how far the policy moves.

    How it is judged:
        The divergence from the old policy falls, or the largest importance ratio falls. Guard: the
        reward does not fall.

    References:
        Stabilizing Reinforcement Learning with LLMs, arXiv 2512.01374 (which separates staleness,
        from several updates on one batch, from the gap between engines).
    """

    id = "fewer-updates"
    title = "Make fewer optimizer steps per batch"
    applicability = "safe"
    in_flight = True
    slots = ("step-size",)
    target = Criterion("kl/old_policy/k3", "down")
    more_targets = (Criterion("ratio/max", "down"), Criterion("reward/mean", "up"))
    guards = (Criterion("reward/mean", "down", 0.1),)
    paper = "Stabilizing Reinforcement Learning with LLMs, arXiv 2512.01374"
    alternatives = ("cispo", "sapo", "m2po")
    when_unknown: ClassVar[Mapping[str, Setting]] = {"updates_per_batch": 4}
    acts_on = Requirement(
        ("updates_per_batch",),
        "one update is made per batch",
        above=1,
        wanted="a batch takes more than 4 updates",  # `when_unknown`
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `updates_per_batch` to its largest divisor that does not exceed its square root."""
        updates = number(knobs, "updates_per_batch")
        if updates is None or updates < 2:
            return {}
        current = int(updates)
        divisors = (n for n in range(1, math.isqrt(current) + 1) if current % n == 0)
        fewer = max(divisors)
        return {"updates_per_batch": fewer}

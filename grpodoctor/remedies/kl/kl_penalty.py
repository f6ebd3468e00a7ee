"""A KL penalty to the reference model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy, Requirement, number, round_to_two_digits
from grpodoctor.vocabulary.knobs import Setting

FIRST = 0.04
"""Coefficient used by DeepSeekMath, section 4.2."""

MOST = 0.1
"""Above this the penalty dominates the gradient for rewards in [0, 1]."""

LEAST = -0.1
"""Nats; k1 scatters around 0 at the start of a run."""


class KlPenalty(Remedy):
    """Add a KL penalty to the reference model: coefficient 0.04, or twice the current one.

    What it does:
        Adds the divergence from the reference model to the loss. The penalty bounds drift, and so
        limits the damage from reward hacking and from steps that are too large.

    When it applies:
        The policy drifts from a good reference, and the penalty has the right sign. If the estimate
        of the KL is negative, check its sign first.

    What it costs:
        It changes what is optimized: the best policy under the penalty is not the best policy. It
        requires memory for the reference model and a forward pass of it. Most recent recipes have
        no KL penalty.

    What it overlaps:
        A KL term in the reward: both together count it twice.

    How it is judged:
        The divergence from the reference falls, or entropy returns toward its starting value.
        Guard: the reward does not fall.

    References:
        DeepSeekMath, arXiv 2402.03300, section 4.1; Schulman, Approximating KL Divergence.
    """

    id = "kl-penalty"
    title = "Penalize divergence from the reference model"
    applicability = "unsafe"
    in_flight = True
    slots = ("kl",)
    target = Criterion("kl/reference/k3", "down")
    more_targets = (Criterion("entropy/mean", "toward-baseline"),)
    guards = (Criterion("reward/mean", "down", 0.1),)
    paper = "DeepSeekMath, arXiv 2402.03300"
    alternatives = ("check-kl-sign",)
    when_unknown: ClassVar[Mapping[str, Setting]] = {"kl_coefficient": 0.04}
    acts_on = Requirement(
        ("kl/reference/k1",),
        "the KL estimate is negative: check its sign first (check-kl-sign)",
        above=LEAST,
        wanted="the KL estimate (k1) is not negative",
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `kl_coefficient` if it is known and below the bound."""
        coefficient = number(knobs, "kl_coefficient")
        if coefficient is None or coefficient >= MOST:
            return {}
        return {"kl_coefficient": min(MOST, max(FIRST, round_to_two_digits(2 * coefficient)))}

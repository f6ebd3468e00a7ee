"""A KL penalty to the reference model."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch, number, round_figure
from grpodoctor.vocabulary.knobs import Setting

FIRST = 0.04
"""The coefficient of DeepSeekMath, section 4.2."""

MOST = 0.1
"""Above this the penalty rules the gradient where rewards lie in 0..1."""


class KlPenalty(Remedy):
    """Pull the policy toward the reference: a coefficient of 0.04, or twice the present one.

    What it does:
        Adds the divergence from the reference model to the loss. It bounds drift, and with it the
        damage of steps that are too large and of rewards that are being gamed.

    What it costs:
        It changes what is optimized: the best policy under the penalty is not the best policy. A
        forward pass of the reference model, and its memory. Most recent recipes do without.

    What it overlaps:
        A KL term in the reward: both together count it twice.

    How it is judged:
        The divergence from the reference falls, or entropy returns toward where the run began.
        Guard: the reward does not fall.

    References:
        DeepSeekMath, arXiv 2402.03300, section 4.1; Schulman, Approximating KL Divergence.
    """

    id = "kl-penalty"
    title = "Penalise divergence from the reference model"
    applicability = "unsafe"
    in_flight = True
    slots = ("kl",)
    target = Watch("kl/reference/k3", "down")
    also = (Watch("entropy/mean", "toward-baseline"),)
    guards = (Watch("reward/mean", "down", 0.1),)
    paper = "DeepSeekMath, arXiv 2402.03300"

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `kl_coefficient`, where it is known and below the bound."""
        coefficient = number(knobs, "kl_coefficient")
        if coefficient is None or coefficient >= MOST:
            return {}
        return {"kl_coefficient": min(MOST, max(FIRST, round_figure(2 * coefficient)))}

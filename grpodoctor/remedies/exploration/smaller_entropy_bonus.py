"""A smaller entropy bonus."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Criterion, Remedy, Requirement, number
from grpodoctor.vocabulary.knobs import Setting

_USUAL = 0.001


class SmallerEntropyBonus(Remedy):
    """Lower the coefficient of the entropy bonus to 0.001.

    What it does:
        Weakens the push toward random tokens, so that the gradient follows the reward again.

    When it applies:
        The run has an entropy bonus above 0.001, and entropy rises or the reward does not.

    What it costs:
        Entropy may fall faster; clip-higher keeps exploration without a bonus.

    What it overlaps:
        Clip-higher, Clip-Cov, KL-Cov, forking tokens, a higher temperature: choose one.

    How it is judged:
        Entropy returns toward its starting value, or the reward rises. Guard: the reward does not
        fall.

    References:
        The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models, arXiv
        2505.22617 (0.01 made entropy explode).
    """

    id = "smaller-entropy-bonus"
    title = "Lower the entropy bonus to 0.001"
    applicability = "unsafe"
    in_flight = True
    slots = ("exploration",)
    target = Criterion("entropy/mean", "toward-baseline")
    more_targets = (Criterion("reward/mean", "up"),)
    guards = (Criterion("reward/mean", "down", 0.1),)
    paper = "arXiv 2505.22617"
    how = "Lower the coefficient of the entropy bonus to 0.001 or to 0."
    acts_on = Requirement(
        ("entropy_coefficient",), "the run has no entropy bonus above 0.001", above=_USUAL
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `entropy_coefficient` if it is known and higher."""
        coefficient = number(knobs, "entropy_coefficient")
        return {"entropy_coefficient": _USUAL} if coefficient and coefficient > _USUAL else {}

"""A smaller KL penalty."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Criterion, Remedy, Requirement, number
from grpodoctor.vocabulary.knobs import Setting

_START = 0.001


class SmallerKlPenalty(Remedy):
    """Lower the coefficient of the KL penalty to 0.001.

    What it does:
        Weakens the pull toward the reference model, so that the gradient follows the reward again.

    When it applies:
        The run has a KL penalty far above 0.04, and the policy stays close to the reference without
        a rise of the reward.

    What it costs:
        The policy may drift farther. Most recent recipes have no KL penalty at all.

    What it overlaps:
        `kl-penalty`, which raises the same coefficient.

    How it is judged:
        The reward rises. Guard: the divergence from the reference does not grow far.

    References:
        DeepSeek-R1, arXiv 2501.12948 (0.001); DeepSeekMath, arXiv 2402.03300, section 4.2 (0.04);
        DAPO, arXiv 2503.14476 (none).
    """

    id = "smaller-kl-penalty"
    title = "Lower the KL coefficient to 0.001"
    applicability = "unsafe"
    in_flight = True
    slots = ("kl",)
    target = Criterion("reward/mean", "up")
    guards = (Criterion("kl/reference/k3", "up", 2.0, slack=0.1),)
    paper = "DeepSeek-R1, arXiv 2501.12948"
    how = "Lower the coefficient of the KL penalty to 0.001, or remove the penalty."
    acts_on = Requirement(
        ("kl_coefficient",), "the run has no KL penalty above 0.001", above=_START
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `kl_coefficient` if it is known and higher."""
        coefficient = number(knobs, "kl_coefficient")
        return {"kl_coefficient": _START} if coefficient and coefficient > _START else {}

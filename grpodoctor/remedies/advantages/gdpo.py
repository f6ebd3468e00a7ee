"""GDPO: each reward component is standardized separately."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class Gdpo(Remedy):
    """Standardize each reward component within its group before adding them: GDPO.

    What it does:
        In a sum, the component with the largest spread decides the advantage, and different
        combinations give the same sum. GDPO standardizes each component within the group, adds
        them, and standardizes the sum over the batch, so every component keeps its weight in the
        gradient.

    When it applies:
        The reward has several components, and one dominates or two cancel.

    What it costs:
        A component that is only noise gets the same weight as correctness. Components must be
        logged and passed separately.

    What it overlaps:
        Every other advantage estimator. Weights of the components in the reward no longer matter.

    How it is judged:
        The component that was drowned out rises. Guard: the reward does not fall.

    References:
        GDPO: Group reward-Decoupled Normalization Policy Optimization, arXiv 2601.05242.
    """

    id = "gdpo"
    title = "Use GDPO: standardize reward components separately"
    applicability = "unsafe"
    in_flight = True
    slots = ("advantage",)
    target = Criterion("groups/cancelled_rate", "down")
    more_targets = (Criterion("reward/mean", "up"),)
    guards = (Criterion("reward/mean", "down", 0.1),)
    paper = "GDPO, arXiv 2601.05242"
    alternatives = ("reweight-rewards",)
    settings: ClassVar[Mapping[str, Setting]] = {"advantage": "gdpo"}

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set what differs if advantages are relative to the group."""
        return super().change(knobs) if knobs.get("advantage") in ("group", "centred") else {}

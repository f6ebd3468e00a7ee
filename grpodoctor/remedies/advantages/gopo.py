"""GOPO: advantages from the order of the rewards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class Gopo(Remedy):
    """Use the rank of each response in its group instead of its reward: GOPO.

    What it does:
        A judge's scores have no fixed scale: one prompt has scores from 6 to 7, another from 1 to
        9. Ranks from -2 to 2 depend on the order only, so outliers and drifting scales have no
        effect.

    When it applies:
        Rewards come from a reward model or a judge, with a scale that varies between prompts.

    What it costs:
        With verifiable rewards of 0 and 1 it has no advantage: nearly all responses are ties. A
        group whose rewards are equal still gets advantages if ties are broken by order.

    What it overlaps:
        Every other advantage estimator.

    How it is judged:
        The spread of advantages is steady, and the reward rises. Guard: the reward does not fall.

    References:
        GOPO, arXiv 2602.03876.
    """

    id = "gopo"
    title = "Use GOPO: advantages from ranks"
    applicability = "unsafe"
    in_flight = True
    slots = ("advantage",)
    target = Criterion("advantage/abs_max", "down")
    more_targets = (Criterion("reward/mean", "up"),)
    guards = (Criterion("reward/mean", "down", 0.1),)
    paper = "GOPO, arXiv 2602.03876"
    settings: ClassVar[Mapping[str, Setting]] = {"advantage": "gopo"}

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set what differs if advantages are relative to the group."""
        return super().change(knobs) if knobs.get("advantage") in ("group", "centred") else {}

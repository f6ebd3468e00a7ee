"""GMPO: the geometric mean of a response's ratios."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class Gmpo(Remedy):
    """Aggregate the ratios of a response by their geometric mean: GMPO.

    What it does:
        A single extreme ratio dominates an arithmetic mean over tokens. The geometric mean hardly
        moves, so the clip can be wider: exp(-0.4) to exp(0.4), about 0.67 to 1.49.

    When it applies:
        A few tokens of a response have extreme ratios, and entropy falls.

    What it costs:
        All tokens of a response share one factor, so a clipped token costs its neighbors weight
        too.

    What it overlaps:
        GSPO, which also aggregates over a response; clip-higher; the token-level loss, because it
        has its own denominator.

    How it is judged:
        By a person, after the restart: the largest ratio falls and entropy stays higher.

    References:
        Geometric-Mean Policy Optimization, arXiv 2507.20673.
    """

    id = "gmpo"
    title = "Use GMPO: geometric mean of ratios"
    applicability = "suggest"
    in_flight = False
    slots = ("trust-region", "denominator")
    target = Criterion("ratio/max", "down")
    more_targets = (Criterion("entropy/mean", "up"),)
    paper = "GMPO, arXiv 2507.20673"
    how = "Restart with GMPO and a clip of 0.4 in log space."
    restart_with: ClassVar[Mapping[str, Setting]] = {"loss": "gmpo"}

"""A bound on the age of samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class LimitStaleness(Remedy):
    """Restart with samples that are at most one step old.

    What it does:
        In asynchronous training, a response may have been sampled many updates ago. Its importance
        ratio is then far from 1, so it is clipped, or it dominates the gradient. A bound on the age
        keeps ratios near 1.

    When it applies:
        Staleness is above what the loss tolerates: about 1 to 4 steps for a clipped loss, more for
        a loss made for old samples.

    What it costs:
        Idle time of the sampler or the learner. Published asynchronous runs need a bound of 4 to 8
        for full speed.

    What it overlaps:
        Losses made for old samples (`m2po`, `cispo`), which tolerate what this removes.

    How it is judged:
        By a person, after the restart: staleness is at its bound, and the clipped share and the
        mismatch fall.

    References:
        AReaL, arXiv 2505.24298 (how much staleness a run tolerates).
    """

    id = "limit-staleness"
    title = "Bound the age of the samples"
    applicability = "suggest"
    in_flight = False
    slots = ("weight-sync",)
    target = Criterion("staleness/max", "down")
    more_targets = (Criterion("staleness/mean", "down"),)
    paper = "AReaL, arXiv 2505.24298"
    alternatives = ("m2po",)
    how = "Set the bound on staleness to 1 step, and raise it while the clipped share stays low."
    restart_with: ClassVar[Mapping[str, Setting]] = {"staleness_limit": 1}

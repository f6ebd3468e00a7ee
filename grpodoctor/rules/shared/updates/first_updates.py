"""What the first updates of a run clipped, and what they left of the entropy."""

from __future__ import annotations

import statistics
from typing import NamedTuple

from grpodoctor.rules.shared.health.run_health import ENTROPY_METRICS, current_metric
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import BASELINE

CLIP_SIDES = ("clip/low_rate", "clip/high_rate")
"""Clip fractions of the two sides, where they are logged apart."""
ANY_CLIP = "clip/any_rate"
MANY_CLIPPED = 0.1
"""Clipped tokens per nat of entropy, in the first step. Only tokens that could have been others can
be clipped, so few are in a policy with little entropy. Healthy simulated runs clipped at most one
token in ten thousand in their first step. Wrong old log-probabilities and dropout in the learner
gave .18 to .37, and thirty-two updates per batch at a rate a hundred times too high .2 to .9
(tests/benchmarks/planted_mechanisms). One public run that was labeled healthy began at .14, of
which CLP001 warns as well (counted once; no command prints it)."""
_LATER = 6
"""Readings between the first one and those that make the level after the first updates."""


class FirstUpdates(NamedTuple):
    """The first updates of a run, if they clipped many of its uncertain tokens."""

    metrics: tuple[str, ...]
    """The clip fractions and the entropy that are logged."""
    step: int
    clipped: tuple[float, float]
    """Share of tokens that they clipped, and that some more updates did."""
    entropy: tuple[float, float]
    """Entropy before them and after some more, in nats per token."""

    @property
    def entropy_left(self) -> float:
        """Share of the entropy that is left."""
        before, after = self.entropy
        return after / before

    @property
    def clipped_left(self) -> float:
        """Clipped share after some more updates, as a part of the first one."""
        before, after = self.clipped
        return after / before


def many_clipped_at_first(chart: Chart) -> FirstUpdates | None:
    """The first updates, if they clipped many tokens; None if few, or the run is too short."""
    low, high = [chart.series(name).first_value for name in CLIP_SIDES]
    clipped = (low or 0.0) + (high or 0.0)
    if low is None and high is None:
        clipped = chart.series(ANY_CLIP).first_value or 0.0
    name = current_metric(chart, ENTROPY_METRICS)
    entropy = chart.series(name)
    started = entropy.first_value or 0.0
    if not started > 0 or not clipped >= MANY_CLIPPED * started:
        return None  # the usual case
    sides = [side for side, value in zip(CLIP_SIDES, (low, high), strict=True) if value is not None]
    sides = sides or [ANY_CLIP]
    clips = [chart.series(each) for each in sides]
    if max(series.first_step for series in (entropy, *clips)) > 1:
        return None  # logged later than the first updates
    later = entropy.head(BASELINE)[_LATER:]
    if len(later) < BASELINE - _LATER:
        return None
    left = sum(statistics.median(each.head(BASELINE)[_LATER:] or [0.0]) for each in clips)
    nats = started, statistics.median(later)
    return FirstUpdates((*sides, name), entropy.first_step, (clipped, left), nats)

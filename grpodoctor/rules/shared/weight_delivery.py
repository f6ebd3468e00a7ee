"""What the rules about delivered weights share."""

from __future__ import annotations

from grpodoctor.rules.shared.mismatch_levels import HARMFUL
from grpodoctor.runs.chart import Chart

LEFT, NOISE = "delivery/unexplained", "delivery/noise"
FACTOR = 4.0
"""Multiple of the noise that no weights of the learner explain. Readings of one engine pair stay
within a factor of two of each other; reported corruptions are 5 to 25 times."""


def fits_no_weights(chart: Chart, factor: float = FACTOR) -> bool:
    """Whether the sampler's log-probabilities fit neither current nor earlier weights."""
    left, noise = chart.value(LEFT), chart.value(NOISE)
    if left is None or noise is None:
        return False
    return left >= max(factor * noise, HARMFUL["mismatch/logprob_diff_mean"])

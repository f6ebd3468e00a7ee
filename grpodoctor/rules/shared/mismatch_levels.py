"""Metrics of the sampler-learner mismatch, and the levels that matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grpodoctor.rules.shared.health.run_health import RECENT, current_metric, fresh_metric
from grpodoctor.runs.chart import Chart

GROWTH_FACTOR = 2.5
"""Multiple of the starting value: healthy bf16 runs reach 1.4, a bad quantization 3."""
MIN_SPREADS = 6.0
"""Growth as a multiple of the starting value's spread."""
MIN_READINGS = 20
"""Minimum readings: the starting value and the current level must not overlap."""

HARMFUL: Mapping[str, float] = {
    "mismatch/prob_diff_mean": 0.02,
    "mismatch/logprob_diff_mean": 0.05,
    "mismatch/kl_k3": 0.01,
    "mismatch/kl_k1": 0.01,
}
"""Level at which a mismatch does harm. Ordinary engine pairs show a |log-probability difference| of
.004 to .02 and a probability difference of .004; small runs lose accuracy from a probability
difference of .02 to .03 on. A KL of .01 is what verl's fp8 sampler with one scale per tensor begins
with."""

ORDINARY: Mapping[str, float] = {
    "mismatch/prob_diff_mean": 0.004,
    "mismatch/logprob_diff_mean": 0.01,
    "mismatch/kl_k3": 0.005,
    "mismatch/kl_k2": 0.005,
    "mismatch/kl_k1": 0.005,
}
"""The upper end of what bf16 and fp8 engine pairs show (probability .0042, k3 .0042); in
log-probability a little above twice that. The three estimators of the KL agree to second order in
the gap."""

UNSIGNED: tuple[str, ...] = tuple(name for name in ORDINARY if name != "mismatch/kl_k1")
"""Those whose single readings are no smaller than the gap: k1 has both signs, so that one reading
of it may be near 0 by chance."""


@dataclass(frozen=True, slots=True)
class GrownMismatch:
    """A mismatch far above its start and above the level of ordinary engine pairs."""

    metric: str
    start: float
    now: float


def grown_mismatch(
    chart: Chart,
    growth_factor: float = GROWTH_FACTOR,
    min_spreads: float = MIN_SPREADS,
    min_readings: int = MIN_READINGS,
) -> GrownMismatch | None:
    """The mismatch that has grown; None without one.

    Args:
        chart: the run so far.
        growth_factor: least multiple of the starting value.
        min_spreads: least growth as a multiple of the starting value's spread.
        min_readings: least number of readings.
    """
    name = fresh_metric(chart, ORDINARY)
    if name is None:
        return None
    series = chart.series(name)
    start = series.baseline
    if start is None or len(series) < min_readings or series.last < ORDINARY[name]:
        return None
    level = series.level(RECENT)
    threshold = max(growth_factor * start.level, start.level + min_spreads * start.spread)
    if not level > max(threshold, ORDINARY[name]):
        return None
    return GrownMismatch(name, start.level, level)


def logged_mismatch(chart: Chart) -> str:
    """The first of the metrics with a reading at this step."""
    return current_metric(chart, tuple(HARMFUL))

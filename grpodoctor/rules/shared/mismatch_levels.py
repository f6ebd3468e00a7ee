"""Metrics of the sampler-learner mismatch, and the levels that matter."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.runs.chart import Chart

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
}
"""The upper end of what bf16 and fp8 engine pairs show (probability .0042, k3 .0042); in
log-probability a little above twice that."""


def logged_mismatch(chart: Chart) -> str:
    """The first of the metrics with a reading at this step."""
    return next(name for name in HARMFUL if chart.is_fresh(name))

"""The mismatch of each step, and whether it grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from grpodoctor.measure.divergence import k3
from grpodoctor.probe.run_mismatch.recorded_tokens import StepTokens

Direction = Literal["rises", "falls", "flat", "unknown"]

_MIN_STEPS = 5
"""Fewer steps have no trend."""
_LEVEL = 0.01
"""Probability of a trend by chance."""


@dataclass(frozen=True, slots=True)
class StepMismatch:
    """The figures of one step, over all its tokens."""

    step: int
    tokens: int
    kl_k3: float
    """Mean of the terms of the KL estimator k3, nats per token."""
    prob_diff_mean: float
    prob_diff_max: float
    bias: float
    """Mean log-probability under the learner minus that under the sampler."""


@dataclass(frozen=True, slots=True)
class Trend:
    """How the KL changes over the steps."""

    direction: Direction
    first: float
    """Level at the first step, by a robust line."""
    last: float


def mismatch_of(tokens: StepTokens) -> StepMismatch:
    """The figures of a step."""
    gaps_N = np.abs(np.exp(tokens.learner_N) - np.exp(tokens.sampler_N))
    return StepMismatch(
        tokens.step,
        int(gaps_N.size),
        float(k3(tokens.difference_N).mean()),
        float(gaps_N.mean()),
        float(gaps_N.max()),
        float(tokens.difference_N.mean()),
    )


def trend_of(steps: Sequence[StepMismatch]) -> Trend:
    """Theil and Sen's line through the KL, and Kendall's test of its direction."""
    from scipy.stats import kendalltau, theilslopes

    values = np.array([step.kl_k3 for step in steps])
    numbers = np.array([step.step for step in steps], float)
    if len(steps) < _MIN_STEPS or np.ptp(values) == 0:
        direction: Direction = "unknown" if len(steps) < _MIN_STEPS else "flat"
        return Trend(direction, float(values[0]), float(values[-1]))
    line = theilslopes(values, numbers)
    first, last = (float(line.intercept + line.slope * number) for number in numbers[[0, -1]])
    test = kendalltau(numbers, values)
    least = float(values.min())  # a line through a curved series may leave the range of a KL
    direction = "flat" if test.pvalue >= _LEVEL else "rises" if line.slope > 0 else "falls"
    return Trend(direction, max(first, least), max(last, least))

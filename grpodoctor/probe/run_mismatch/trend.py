"""The mismatch of each step, and whether it changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from grpodoctor.measure.divergence import k3
from grpodoctor.probe.run_mismatch.jump import Floats, find_jump
from grpodoctor.probe.run_mismatch.recorded_tokens import StepTokens

Direction = Literal["rises", "falls", "jumps", "drops", "flat", "unknown"]

_MIN_STEPS = 5
"""Fewer steps have no trend."""
_LEVEL = 0.01
"""Probability of a trend by chance."""
ROUNDING_KL = 1e-6
"""Nats per token that two engines in float32 stay below; changes below it mean nothing."""


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
    equal_tokens: int = 0
    """Tokens whose two log-probabilities are bitwise equal."""


@dataclass(frozen=True, slots=True)
class Trend:
    """How the KL changes over the steps."""

    direction: Direction
    first: float
    """Level at the first step, by a robust line; for a jump, the median before it."""
    last: float
    """Level at the last step, or the median since the jump."""
    jump_step: int | None = None
    """First step of the new level, if the KL jumps or drops."""


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
        int((tokens.sampler_N == tokens.learner_N).sum()),
    )


def trend_of(steps: Sequence[StepMismatch]) -> Trend:
    """A jump at one step, or a monotone trend."""
    return trend_of_values([(step.step, step.kl_k3) for step in steps])


def trend_of_values(values: Sequence[tuple[int, float]]) -> Trend:
    """The trend of a non-negative figure of a mismatch.

    Args:
        values: steps, ascending, with the figure.
    """
    steps, values_S = [step for step, _ in values], np.array([value for _, value in values])
    first, last = float(values_S[0]), float(values_S[-1])
    if len(steps) < _MIN_STEPS:
        return Trend("unknown", first, last)
    if values_S.max() < ROUNDING_KL or np.ptp(values_S) == 0:
        return Trend("flat", first, last)
    place = find_jump(values_S)
    if place is not None:
        before, after = (float(np.median(each)) for each in (values_S[:place], values_S[place:]))
        direction: Direction = "jumps" if after > before else "drops"
        return Trend(direction, before, after, steps[place])
    return _monotone(values_S, np.array(steps, float))


def _monotone(values_S: Floats, steps_S: Floats) -> Trend:
    """Theil and Sen's line through the KL, and Kendall's test of its direction."""
    from scipy.stats import kendalltau, theilslopes

    line = theilslopes(values_S, steps_S)
    first, last = (float(line.intercept + line.slope * step) for step in steps_S[[0, -1]])
    chance = _without_autocorrelation(float(kendalltau(steps_S, values_S).pvalue), values_S)
    direction: Direction = "flat" if chance >= _LEVEL else "rises" if line.slope > 0 else "falls"
    least = float(values_S.min())  # a line through a curved series may leave the range of a KL
    return Trend(direction, max(first, least), max(last, least))


def _without_autocorrelation(chance: float, values_S: Floats) -> float:
    """The probability of a trend by chance if neighboring steps resemble each other.

    Hamed and Rao (1998) enlarge the variance of Kendall's statistic by the autocorrelation of the
    ranks around the trend. That of short series is estimated too low; Marriott and Pope (1954) give
    the bias, which is larger here because three parameters were fitted.
    """
    from scipy.stats import norm, rankdata

    count = values_S.size
    if count <= 2 * _PARAMETERS:
        return chance
    rest_S = _around_the_trend(rankdata(values_S))
    power = float((rest_S**2).sum())
    if power < _NEARLY_NONE:
        return chance
    measured = float((rest_S[1:] * rest_S[:-1]).sum()) / power
    correlation = np.clip(measured + _PARAMETERS / 2 * (1 + 3 * measured) / count, 0.0, 0.95)
    lags = np.arange(1, count)
    excess = 1 + 2 * float(((1 - lags / count) * correlation**lags).sum())
    return float(2 * norm.sf(norm.isf(max(chance, 1e-300) / 2) / np.sqrt(excess)))


_PARAMETERS = 3
"""Parameters of the trend that is removed before the autocorrelation is estimated."""
_NEARLY_NONE = 1e-9


def _around_the_trend(ranks_S: Floats) -> Floats:
    """The ranks without a parabola or without two levels, whichever fits better."""
    places_S = np.arange(ranks_S.size)
    curve_S = np.polyval(np.polyfit(places_S, ranks_S, _PARAMETERS - 1), places_S)
    means = [
        np.where(places_S < place, ranks_S[:place].mean(), ranks_S[place:].mean())
        for place in places_S[1:]
    ]
    rests = [ranks_S - fit_S for fit_S in (curve_S, *means)]
    return min(rests, key=lambda rest_S: float((rest_S**2).sum()))

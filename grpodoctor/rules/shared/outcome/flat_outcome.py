"""Whether the outcome of a run has risen, and what the log shows of the reason if it has not."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import Literal

from grpodoctor.rules.shared.groups.zero_variance import zero_variance_cause
from grpodoctor.rules.shared.health.run_health import (
    RECENT,
    fresh_metric,
    has_critic,
    is_near_ceiling,
    is_solved,
    is_stuck,
    outcome_metric,
    reading_noise,
    typical_share,
    zero_variance_metric,
)
from grpodoctor.rules.shared.health.whole_run import PARTS, quarter_means, rises_over_run
from grpodoctor.rules.shared.shapes.trend import OUTCOMES, change
from grpodoctor.rules.shared.shapes.windows import in_typical_steps
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import BASELINE, OPENING, Series, once_per_reading

_REFERENCE_KLS = ("kl/reference/k3", "kl/reference/k1", "kl/reference/k2")
"""Metrics of the distance from the policy to the reference."""

_ERRORS = 2.0
"""Standard errors of the difference of two levels from which an outcome has risen."""

_ERRORS_WITHOUT_TREND = 2.5
"""Standard errors from which two means of ten differ although the whole run has no trend. Chance
gives this difference to one series in 160, as it does the trend of `whole_run`."""

_MIN_TREND = 2.0
"""Standard score of the rise over the whole run. Of 300 simulated runs of single responses, which
have no trend, a fifth had a higher median in the end, and a twentieth a trend as well."""

_MOST_GROUPS = 0.5
"""Share of zero-variance groups that halve the batch; healthy runs stay below a third."""

_LITTLE_MOVED = 0.002
"""Nats per token: runs that learn are further from the reference after fifty readings."""

_MOVED = 0.01
"""Nats per token at which the policy is certainly another one than the reference."""

_MIN_READINGS = 50
"""Readings after which runs that learn are further away than `_LITTLE_MOVED`."""

_LONG = 2 * PARTS * BASELINE
"""Readings from which the quarters of a run say more than its first and latest ten readings."""

_CHANGED = 4.0
"""Standard errors by which entropy or length must differ from its start to have changed."""

_BEHAVIOR = {"entropy/mean": "entropy", "length/mean": "length"}

_BY_GROUPS: dict[str | None, tuple[str, ...]] = {
    "all-correct": ("harder-prompts", "refilter-prompts"),
    "all-incorrect": ("easier-prompts", "refilter-prompts", "dynamic-sampling"),
    None: ("dynamic-sampling", "refilter-prompts"),
}


_OF_PAIRS = ("larger-groups", "larger-batch")


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an outcome may not have risen."""

    clause: str
    """What the log shows, as a part of a sentence; empty if it shows nothing of the kind."""
    remedies: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    """The metrics that the clause is about."""


def outcome_rose(chart: Chart) -> bool:
    """Whether a measure of the outcome rose, by its level or over the whole run."""
    measures = [chart.series(name) for name in OUTCOMES]
    return any(map(is_above_start, measures)) or (
        any(map(rises_over_run, measures)) and not is_stuck(chart)
    )


def is_flat(chart: Chart) -> bool:
    """Whether no measure of the outcome rose although the prompts are not solved."""
    return not outcome_rose(chart) and not is_solved(chart)


@once_per_reading
def is_above_start(series: Series) -> bool:
    """Whether the latest level is above the first readings by more than noise.

    The medians of ten rewards of few responses jump between 0 and 1. So the run must show a trend
    as well, or the means must differ: an early rise that is partly lost again has no trend.
    """
    start = series.start
    if start is None or not series.level(RECENT) > start.level:
        return False  # before the noise is estimated
    if not series.level(RECENT) - start.level > median_noise(series):
        return False
    if series.trend >= _MIN_TREND:
        return True
    first = series.head(RECENT if start is series.baseline else OPENING)
    error = reading_noise(series) * math.sqrt(1 / len(first) + 1 / RECENT)
    return series.mean(RECENT) - math.fsum(first) / len(first) > _ERRORS_WITHOUT_TREND * error


@dataclass(frozen=True, slots=True)
class FlatLevels:
    """The first and the latest level of an outcome that has not risen, as sentences state them."""

    start: float
    now: float
    noise: float
    """Two standard errors of their difference; NaN if they differ by more, so it is no bound."""
    basis: Literal["quarters", "means", "medians"]
    """Means of the first and the last quarter of the run, or means or medians of ten readings."""

    @property
    def is_bounded(self) -> bool:
        """Whether the rise, if there is any, is within the noise."""
        return self.now - self.start <= self.noise


def flat_levels(series: Series) -> FlatLevels:
    """From where to where an outcome moved that has not risen, and the noise of this difference.

    The first of three pairs whose difference is within noise: the quarters of a run of eighty
    readings, whose noise is smallest; the means of ten readings; the medians that `is_above_start`
    compares. Means come first since the rewards of few responses take few values, and their median
    is one of them.
    """
    noise, head = reading_noise(series), series.head(BASELINE)
    start = series.start.level if series.start else math.nan
    of_quarter = _ERRORS * noise * math.sqrt(2 / max(1, series.readings // PARTS))
    of_ten = _ERRORS * noise * math.sqrt(2 / max(1, len(head)))
    pairs = (
        FlatLevels(*quarter_means(series), of_quarter, "quarters"),
        FlatLevels(statistics.fmean(head), series.mean(RECENT), of_ten, "means"),
        FlatLevels(start, series.level(RECENT), median_noise(series), "medians"),
    )
    shown = pairs if series.readings >= _LONG else pairs[1:]
    return next((pair for pair in shown if pair.is_bounded), replace(pairs[-1], noise=math.nan))


def median_noise(series: Series) -> float:
    """Two standard errors of the difference between the first and the latest median of ten."""
    # The error of the median of n readings is 1.25 / sqrt(n) of the noise of one.
    error = 1.25 * reading_noise(series) * math.sqrt(2 / max(1, min(len(series), RECENT)))
    return _ERRORS * error


_HIDES = 0.5
"""Share of the level from which a rise that the noise would hide is large."""


def reason_for_no_rise(chart: Chart) -> Reason:
    """What the log shows of the reason for which the outcome has not risen.

    The first of these that applies: few groups vary, the outcome began near its maximum, the policy
    has hardly moved, the noise would hide a large rise, the policy has moved without a gain.
    """
    reasons = (_few_groups, _near_ceiling, _little_moved, _hidden_by_noise, _moved_in_vain)
    found = (reason(chart) for reason in reasons)
    return next(filter(None, found), Reason("", ("recheck-reward", "larger-batch")))


def _few_groups(chart: Chart) -> Reason | None:
    name = zero_variance_metric(chart)
    if name is None or has_critic(chart):
        return None
    series = chart.series(name)
    share = typical_share(series, 2 * RECENT)
    if not share >= _MOST_GROUPS:
        return None
    cause = zero_variance_cause(chart)
    kind = f", most are {cause}" if cause else ""
    steps = in_typical_steps(series, 2 * RECENT)
    are_pairs = _groups_are_pairs(chart)
    of_two = " of 2" if are_pairs else ""
    clause = f"{share:.0%} of groups{of_two} have equal rewards {steps}{kind}"
    return Reason(clause, _OF_PAIRS if are_pairs else _BY_GROUPS[cause], (name,))


def _groups_are_pairs(chart: Chart) -> bool:
    """Whether groups have two responses: half of them or more are alike at every pass rate.

    Their share is p^2 + (1 - p)^2, which is lowest at p = .5, so no choice of prompts helps.
    """
    sizes, knob = chart.series("groups/size"), chart.knobs.get("group_size")
    return (sizes.level(RECENT) if len(sizes) else knob) == 2


def _near_ceiling(chart: Chart) -> Reason | None:
    series = chart.series(outcome_metric(chart) or "")
    if not is_near_ceiling(series):
        return None
    return Reason("little is left to gain on these prompts", ("harder-prompts",))


def _little_moved(chart: Chart) -> Reason | None:
    name = reference_kl(chart)
    if name is None:
        return None
    kl = chart.series(name)
    level = abs(kl.level(RECENT))
    # Zeros are a policy that is its own reference, or a KL that is not computed.
    if not 0 < level < _MOVED or _changed_behavior(chart):
        return None
    clause = f"the policy is still within {level:.1e} nats of its reference"
    if level > _LITTLE_MOVED:
        # Entropy and length must show that this distance changed nothing.
        if kl.readings < _MIN_READINGS or not all(map(chart.is_fresh, _BEHAVIOR)):
            return None
        clause = f"{' and '.join(_BEHAVIOR.values())} are unchanged at a KL of {level:.2g}"
    return Reason(clause, ("raise-learning-rate", "float32-weights"), (name,))


def _hidden_by_noise(chart: Chart) -> Reason | None:
    """Few responses per batch: even a rise by half of the level would be within the noise."""
    levels = flat_levels(chart.series(outcome_metric(chart) or ""))
    if not levels.is_bounded or not levels.noise >= _HIDES * levels.start > 0:
        return None
    return Reason("this noise would hide a rise by half", ("larger-batch", "recheck-reward"))


def _moved_in_vain(chart: Chart) -> Reason | None:
    name, changed = reference_kl(chart), _changed_behavior(chart)
    kl = chart.series(name or "")
    # A reference that is not the starting policy is far from it before the policy has moved.
    before, level = kl.opening.level if kl.opening else math.nan, kl.level(RECENT)
    if name and level - max(before, 0.0) >= _MOVED:
        clause = f"the KL rose from {before:.2g} to {level:.2g} without gain"
        return Reason(clause, ("recheck-reward", "larger-batch"), (name,))
    if not changed:
        return None
    series, noun = chart.series(changed), _BEHAVIOR[changed]
    moved = f"{noun} went from {series.level(RECENT) - change(series)[0]:.3g}"
    clause = f"{moved} to {series.level(RECENT):.3g} without gain"
    return Reason(clause, ("recheck-reward", "larger-batch"), (changed,))


def reference_kl(chart: Chart) -> str | None:
    """The first metric of the distance from the policy to the reference that is logged."""
    return fresh_metric(chart, _REFERENCE_KLS)


def _changed_behavior(chart: Chart) -> str | None:
    """The first of entropy and length that differs from its start by more than noise."""
    for name in _BEHAVIOR:
        shift, error = change(chart.series(name))
        if error > 0 and abs(shift) > _CHANGED * error:
            return name
    return None

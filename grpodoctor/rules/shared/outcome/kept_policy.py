"""Whether the policy was still the same when the outcome fell from one reading to the next.

A policy that breaks down leaves its reference, changes its entropy or follows a large gradient. If
it does none of these, the fall came from outside: the environment, a tool, the data, the verifier.
"""

from __future__ import annotations

import math
import statistics

from grpodoctor.rules.shared.health.run_health import ENTROPY_METRICS, RECENT, current_metric
from grpodoctor.rules.shared.outcome.flat_outcome import reference_kl
from grpodoctor.rules.shared.shapes.trend import change
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.estimators import step_noise
from grpodoctor.runs.series import WINDOW, Series
from grpodoctor.vocabulary.conditions import Condition

FALL_FROM_OUTSIDE = ("recheck-reward", "drop-failed-rollouts", "stop-training")
"""Remedies where the policy did not cause the fall."""

_BEFORE, _AFTER = 5, 5
"""Readings that are compared before and after the fall."""
_AT_ONCE = 0.7
"""Share of the whole fall that one reading takes."""
_LOST = 0.5
"""Share of the level that is lost."""
_NOISES = 6.0
"""Noises of one reading that a fall exceeds; see REW014."""
_KL_GROWTH, _LEAST_KL = 1.5, 0.002
"""Multiple, and nats per token, below which the distance to the reference has hardly changed."""
_ENTROPY_CHANGE = 2.0
"""Factor by which the entropy may change: other prompts or tool results change it as well."""
_PINSKER_MARGIN = 1.5
"""Multiple of Pinsker's bound: the logged KL is an estimate, and lengths differ."""
_SHORTER = 0.95
"""Multiple of the mean length below which responses have become shorter."""
_MORE_CUT = 0.05
"""Growth of the truncated share from which a limit may be the reason."""
_LARGE_GRADIENT = 5.0
"""Multiple of the usual gradient norm that could change a policy in one step."""


def is_at_reference(chart: Chart) -> bool:
    """Whether the policy is as close to its reference as if it had hardly changed."""
    name = reference_kl(chart)
    return name is not None and abs(chart.series(name).level(RECENT)) <= _LEAST_KL


_MOVED = 2.5
"""Standard errors by which a metric differs from its start if the policy is another one. Of three
metrics, chance moves one as far in one run of 27."""


def stands_still(chart: Chart) -> bool:
    """Whether nothing in the log shows that the policy has changed since the start of the run.

    Outcome, entropy and length are where they began, and so is a distance to the reference that is
    logged. A log without entropy and length cannot show it, so the answer is no.
    """
    behavior = (current_metric(chart, ENTROPY_METRICS), "length/mean")
    names = (*behavior, "reward/mean", "accuracy/train")
    moves = [change(chart.series(name)) for name in names if len(chart.series(name))]
    if not all(len(chart.series(name)) for name in behavior):
        return False
    if any(math.isnan(error) or abs(moved) > _MOVED * error for moved, error in moves):
        return False
    return reference_kl(chart) is None or is_at_reference(chart)


def condition_outside(chart: Chart, step: int, *, is_solved_as_before: bool) -> Condition | None:
    """What a fall that came from outside says about the run; None for the condition of a fall.

    More truncated responses are a fault by themselves: a lower limit, or a lost end token. If
    held-out prompts are solved as before, and responses have become longer, the prompts have
    changed instead.

    Args:
        chart: the run.
        step: the step at which the outcome fell.
        is_solved_as_before: whether held-out evaluations show no loss.
    """
    before, after = _around(chart.series("length/mean"), step)
    cut_before, cut_after = _around(chart.series("length/truncated_rate"), step)
    is_cut = cut_after - cut_before >= _MORE_CUT
    if is_cut and (after < _SHORTER * before or not is_solved_as_before):
        return None
    return "environment-change"


def fell_from_outside(chart: Chart, series: Series) -> str:
    """What shows that the fall of an outcome came from outside the policy; empty if nothing does.

    Args:
        chart: the run.
        series: an outcome that has fallen.
    """
    step = _step_of_fall(series)
    name = reference_kl(chart)
    if step is None:
        return ""
    if name is None:
        return _beyond_one_update(chart, series, step)
    before, after = _around(chart.series(name), step)
    moved = abs(after) - abs(before)
    if not before or not moved <= max(_LEAST_KL, (_KL_GROWTH - 1) * abs(before)):
        return ""
    if _gradient_was_large(chart, step) or _entropy_changed(chart, step):
        return ""
    changed = "the environment or verifier changed"
    return f"in step {step}; {changed}, as the KL stayed at {abs(after):.2g}"


def _beyond_one_update(chart: Chart, series: Series, step: int) -> str:
    """What shows that the updates of one batch cannot have caused a fall; empty if they can.

    By Pinsker's inequality, the probability of no event changes by more than the root of half the
    KL divergence, which is the length times that of a token. The mean of rewards in [0, 1] changes
    by no more.
    """
    if not series.is_within(0, 1):
        return ""
    lengths, before = dict(chart.series("length/mean")), [at for at, _ in series if at < step]
    for name in ("kl/old_policy/k3", "kl/old_policy/k2"):
        moved = dict(chart.series(name)).get(before[-1], 0.0)
        if not moved > 0 or before[-1] not in lengths:
            continue
        most = math.sqrt(moved * lengths[before[-1]] / 2)
        values = dict(series)
        if values[before[-1]] - values[step] <= _PINSKER_MARGIN * most:
            return ""
        if _gradient_was_large(chart, step) or _entropy_changed(chart, step):
            return ""
        changed = "the environment or verifier changed"
        return f"in step {step}; {changed}, as the updates moved {moved:.2g} nats"
    return ""


def _step_of_fall(series: Series) -> int | None:
    """The step at which most of a lasting fall came in one reading; None without one."""
    steps, values = series.steps(WINDOW), series.tail(WINDOW)
    falls = [
        (values[index - 1] - values[index], index)
        for index in range(_BEFORE, len(values) - _AFTER + 1)
    ]
    if not falls:
        return None
    fall, index = max(falls)
    earlier, later = values[index - _BEFORE : index], values[index : index + RECENT]
    whole = statistics.median(earlier) - statistics.median(later)
    floor = min(0.0, *values)
    is_lasting = whole > 0 and max(later) < min(earlier)
    is_large = whole >= _LOST * (statistics.median(earlier) - floor)
    is_sudden = fall >= max(_AT_ONCE * whole, _NOISES * step_noise(values[:index]))
    return steps[index] if is_lasting and is_large and is_sudden else None


def _around(series: Series, step: int) -> tuple[float, float]:
    """Medians of the readings before a step and from it on; zeros if there are too few."""
    readings = list(series)
    before = [value for at, value in readings if at < step][-_BEFORE:]
    after = [value for at, value in readings if at >= step][:_AFTER]
    if len(before) < _BEFORE or len(after) < _AFTER:
        return 0.0, 0.0
    return statistics.median(before), statistics.median(after)


def _gradient_was_large(chart: Chart, step: int) -> bool:
    earlier = [value for at, value in chart.series("optimizer/grad_norm") if at < step]
    usual = statistics.median(earlier) if earlier else 0.0
    return any(value > _LARGE_GRADIENT * usual for value in earlier[-_BEFORE:])


def _entropy_changed(chart: Chart, step: int) -> bool:
    before, after = _around(chart.series("entropy/mean"), step)
    if not before:
        return False
    return not 1 / _ENTROPY_CHANGE <= after / before <= _ENTROPY_CHANGE

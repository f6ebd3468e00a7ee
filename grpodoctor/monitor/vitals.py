"""The vital signs: the few metrics to look at first, compared with their starting values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from grpodoctor.monitor.level_change import LevelChange, level_change_of
from grpodoctor.rules.shared.health.whole_run import never_moved
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import BASELINE, Series
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.values import NotApplicable

HISTORY = 40
"""Number of readings of each vital sign, unless more are asked for."""

_TREND_READINGS = 5
_SPREADS = 3.0
_SMALLEST_SHARE = 0.02

_RATE = "optimizer/learning_rate"

VITALS: tuple[tuple[str, str], ...] = (
    ("reward", "reward/mean"),
    ("accuracy", "accuracy/train"),
    ("held-out accuracy", "accuracy/heldout"),
    ("entropy", "entropy/mean"),
    ("zero-variance groups", "groups/zero_variance_rate"),
    ("worst mismatch", "mismatch/prob_diff_max/worst_sequence"),
    ("length", "length/mean"),
    ("truncated", "length/truncated_rate"),
    ("gradient norm", "optimizer/grad_norm"),
    ("mean mismatch", "mismatch/prob_diff_mean"),
    ("NLL gap", "mismatch/nll_gap"),
    ("clipped low", "clip/low_rate"),
    ("clipped high", "clip/high_rate"),
    ("length if correct", "length/correct"),
    ("length if incorrect", "length/incorrect"),
    ("KL to old policy", "kl/old_policy/k3"),
    ("KL to reference", "kl/reference/k3"),
    ("explained variance", "critic/explained_variance"),
    ("held-out reward", "reward/heldout"),
    ("learning rate", _RATE),
    ("seconds per step", "time/step"),
)
"""Label and metric, most important first: a small screen shows only the first ones."""

_OTHERWISE: Mapping[str, tuple[tuple[str, str], ...]] = {
    "entropy/mean": (("sampled entropy", "entropy/sampled"),),
    "kl/reference/k3": (
        ("KL to reference (k1)", "kl/reference/k1"),
        ("KL to reference (k2)", "kl/reference/k2"),
    ),
}
"""What some frameworks log in place of a vital sign: another estimate of the same quantity."""

_NEVER_ZERO = frozenset({"entropy/mean", "time/step"})
"""Metrics that are positive in every run: exact zeros throughout are not measured."""

_NOT_COMPUTED = "0 at every step, so the framework did not compute it"

Trend = Literal["up", "down", "steady", "unknown"]


@dataclass(frozen=True, slots=True)
class Vital:
    """One vital sign."""

    label: str
    metric: str
    history: tuple[float, ...]
    """The latest readings, oldest first."""
    now: float | None
    """The latest reading."""
    start: float | None
    """Starting value of the rules: the median of the run's first readings; None until there are
    enough."""
    trend: Trend
    """Direction in which the latest readings left the spread of the first readings."""
    why_not: str = ""
    """Why the metric does not apply to this run; empty if it does."""
    level_change: LevelChange | None = None
    """The first and the latest level, which reports print; None without two readings."""
    course: tuple[float, ...] = ()
    """The whole run, oldest first: its readings, or means of successive ones if they are many."""


def vital_signs(chart: Chart, readings: int = HISTORY) -> list[Vital]:
    """The vital signs of a run, most important first.

    Args:
        chart: the run.
        readings: number of latest readings in each history.
    """
    logged = (_logged(chart, label, metric) for label, metric in VITALS)
    vitals = (_vital(chart, label, metric, readings) for label, metric in logged)
    known = [vital for vital in vitals if vital.history or vital.why_not]
    return [vital for vital in known if not _is_rounded_away(chart, vital)]


def _logged(chart: Chart, label: str, metric: str) -> tuple[str, str]:
    """A vital sign, or the other estimate of it that the run logs."""
    if len(chart.series(metric)):
        return label, metric
    others = (each for each in _OTHERWISE.get(metric, ()) if len(chart.series(each[1])))
    return next(others, (label, metric))


def _is_rounded_away(chart: Chart, vital: Vital) -> bool:
    """Whether a learning rate that is set is logged as 0: consoles print few decimals."""
    rate = chart.knobs.get("learning_rate")
    is_set = isinstance(rate, int | float) and rate > 0
    return vital.metric == _RATE and is_set and not any(vital.history)


def _vital(chart: Chart, label: str, metric: str, readings: int) -> Vital:
    series = chart.series(metric)
    history = tuple(series.tail(readings))
    reading = chart.reading(metric)
    start = series.start
    why_not = reading.why if isinstance(reading, NotApplicable) and not history else ""
    return Vital(
        label=label,
        metric=metric,
        history=history,
        now=history[-1] if history else None,
        start=start.level if start else None,
        trend=_trend(history, start.level, start.spread) if start else "unknown",
        why_not=_NOT_COMPUTED if _is_not_computed(metric, series) else why_not,
        level_change=level_change_of(chart, metric),
        course=tuple(series.course()),
    )


def _is_not_computed(metric: str, series: Series) -> bool:
    """Whether the framework logs zeros for a metric that it does not compute."""
    return metric in _NEVER_ZERO and len(series) > 1 and series.last == 0 and never_moved(series)


def _trend(history: tuple[float, ...], level: float, spread: float) -> Trend:
    latest = sorted(history[-_TREND_READINGS:])[len(history[-_TREND_READINGS:]) // 2]
    margin = max(_SPREADS * spread / math.sqrt(BASELINE), _SMALLEST_SHARE * abs(level))
    if math.isnan(latest) or abs(latest - level) <= margin:
        return "steady"
    return "up" if latest > level else "down"


def format_number(value: float | None, digits: int = 4) -> str:
    """A number in at most eight characters; `-` for None and NaN."""
    if value is None or math.isnan(value):
        return "-"
    if value == 0:
        return "0"  # not -0
    if 1e-3 <= abs(value) < 1e5:
        text = f"{value:.{digits}g}"
        return f"{value:.0f}" if "e" in text else text
    return f"{value:.1e}"


def format_reading(metric: str, value: float | None, digits: int = 4) -> str:
    """A value of a metric as text: a share as a percentage."""
    if value is None or not math.isfinite(value) or not is_share(metric):
        return format_number(value, digits)
    return f"{format_number(100 * value, digits)}%"


def in_tokens(metric: str) -> bool:
    """Whether the values of a metric are lengths, whose unit a reader cannot see."""
    row = metric_of(metric)
    return row is not None and row.unit == "tokens"


def is_share(metric: str) -> bool:
    """Whether the values of a metric are shares, which readers expect as percentages."""
    row = metric_of(metric)
    return row is not None and row.unit == "share"

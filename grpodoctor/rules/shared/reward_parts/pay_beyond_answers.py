"""How much of the reward is paid for the text around the final answer."""

from __future__ import annotations

import math
import statistics
from typing import NamedTuple

from grpodoctor.rules.base import Severity
from grpodoctor.rules.shared.outcome.flat_outcome import flat_levels, outcome_rose
from grpodoctor.rules.shared.shapes.trend import OUTCOMES, change
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW, Series

SAME, OTHER = "groups/same_answer_variance", "groups/other_answer_variance"
BY_LENGTH = "groups/same_answer_length_correlation"
EQUAL = "groups/equal_text_variance"
_MIN_READINGS = 20
_LATEST = 40
"""Readings that the share is computed from: a part of the reward may grow or vanish."""
_ERRORS = 3.0
"""Standard errors that the share is lowered by."""
_LASTING = 0.75
"""Share of its first half that the second half has at least, if nothing has changed."""
_FALLING = 2.0
"""Standard errors by which the second half is lower if the share falls slowly."""
MIN_CORRELATION = 0.6
"""Correlation of reward and length between responses with one answer, three standard errors less,
from which the length explains what is paid: more than a third of it."""
MIN_FLAT = 60
"""Readings after which a flat outcome says something about such a reward. At first the outcome of
every run is flat, and many pay for a format, a tool call, brevity or a reward model's taste."""

_MEAN, _STD = "reward/mean", "reward/std"
_ROUNDING = 2e-3
"""Error of a logged mean or deviation."""
_SAMPLE_STD = 1.07
"""Ratio of the deviation of a sample to that of all for eight responses, the root of 8 / 7."""
_NO_RISE = 0.25
"""Rise as a part of the level, two standard errors included, of an outcome that is flat for sure:
what right answers lack in a reward that rejects many of them would give more."""
_MOVED = 4.0
"""Standard errors by which the length differs from its start if it has changed."""
_ALMOST_ALL = 0.75
"""Share, less its errors, from which the text decides about as much as the answer. Equal rewards
for a right answer and for a format that half of the responses have give two thirds."""
_MIN_TREND = 2.0
"""Standard score of the rise over the whole run: a slow rise shows there before its levels do."""


class BeyondAnswers(NamedTuple):
    """What responses that state the same answer show of the reward."""

    share: float
    """Reward variance between them, as a share of that between responses with two answers; three
    standard errors less."""
    estimate: float
    """The same share without this margin."""
    noise: float
    """The same of identical responses; NaN if hardly any batch has some."""
    by_length: float
    """Correlation of their differences in reward and in length, nearer to 0 by three standard
    errors; 0 if unknown."""
    lasts: bool
    """Whether the share of the latest half of the readings is not far below that of the first: a
    format that is learned makes it fall."""


def beyond_answers(chart: Chart) -> BeyondAnswers | None:
    """The shares over the latest readings; None if there are too few."""
    if not chart.is_fresh(SAME) or not chart.is_fresh(OTHER):
        return None
    same, other = _finite(chart.series(SAME)), _finite(chart.series(OTHER))
    if min(len(same), len(other)) < _MIN_READINGS:
        return None
    lasts = _lasts(same, other)
    same, other = same[-_LATEST:], other[-_LATEST:]
    between = statistics.fmean(other)
    least = statistics.fmean(same) - _ERRORS * _error(same)
    if not between > 0 or not least > 0:
        return None
    equal = _finite(chart.series(EQUAL))[-_LATEST:]
    by_length = _finite(chart.series(BY_LENGTH))
    noise = statistics.fmean(equal) / between if len(equal) >= _MIN_READINGS else math.nan
    correlation = 0.0
    if len(by_length) >= _MIN_READINGS:
        mean = statistics.fmean(by_length)
        correlation = math.copysign(max(0.0, abs(mean) - _ERRORS * _error(by_length)), mean)
    return BeyondAnswers(
        least / between, statistics.fmean(same) / between, noise, correlation, lasts
    )


def severity_beyond_answers(chart: Chart, found: BeyondAnswers) -> Severity:
    """A warning if the outcome is flat, and the share is not explained by the parts of a reward.

    A flat outcome alone says that nothing is learned, and not why: a reward that has a part for a
    format, a tool call or taste is as flat where the learning rate is too low. So a warning needs
    one of these as well:

    - The share is at least `_ALMOST_ALL`.
    - After `MIN_FLAT` readings, the reward is a verdict, which has no parts: right answers fail.
    - After `MIN_FLAT` readings, the length has moved to where it is paid. The policy did learn
      that, at the cost of the rest.
    """
    if outcome_rose(chart):
        return "info"
    if found.share >= _ALMOST_ALL:
        return "warning"
    outcomes = [series for series in map(chart.series, OUTCOMES) if series.readings]
    is_early = max((outcome.readings for outcome in outcomes), default=0) < MIN_FLAT
    if is_early or any(map(_may_rise, outcomes)):
        return "info"
    return "warning" if is_verdict(chart) or _length_was_learned(chart, found) else "info"


def _may_rise(outcome: Series) -> bool:
    """Whether an outcome has a trend, or its noise leaves room for a rise by a quarter."""
    levels = flat_levels(outcome)
    most = levels.now - levels.start + levels.noise
    return outcome.trend >= _MIN_TREND or not most <= _NO_RISE * abs(levels.start)


def is_verdict(chart: Chart) -> bool:
    """Whether the reward has two values, 0 and 1 or -1 and 1, as its mean and its deviation show.

    Of all rewards in a range, those at its two ends alone have the variance (mean - low) times
    (high - mean): the Bhatia-Davis bound.
    """
    deviations = dict(list(chart.series(_STD))[-WINDOW:])
    pairs = [(mean, deviations[at]) for at, mean in chart.series(_MEAN) if at in deviations]
    pairs = pairs[-_MIN_READINGS:]
    if len(pairs) < _MIN_READINGS:
        return False
    return any(
        all(_is_at_bound(mean, deviation, low) for mean, deviation in pairs) for low in (0.0, -1.0)
    )


def _is_at_bound(mean: float, deviation: float, low: float) -> bool:
    bound = math.sqrt(max(0.0, (mean - low) * (1 - mean)))
    return bound - _ROUNDING <= deviation <= bound * _SAMPLE_STD + _ROUNDING


def _length_was_learned(chart: Chart, found: BeyondAnswers) -> bool:
    """Whether the mean length has moved by more than noise to where responses earn more."""
    if abs(found.by_length) < MIN_CORRELATION:
        return False
    shift, error = change(chart.series("length/mean"))
    return shift * math.copysign(1.0, found.by_length) > _MOVED * error


def _lasts(same: list[float], other: list[float]) -> bool:
    """Whether the share of the second half is not far below that of the first.

    Each metric is halved by itself: batches without two equal answers lack one of the two.
    """
    levels = [max(statistics.fmean(half), 1e-12) for half in _halves(other)]
    halves = list(zip(_halves(same), levels, strict=True))
    before, after = (statistics.fmean(half) / level for half, level in halves)
    errors = (_error(half) / level for half, level in halves)
    return after >= max(_LASTING * before, before - _FALLING * math.hypot(*errors))


def _halves(values: list[float]) -> tuple[list[float], list[float]]:
    middle = len(values) // 2
    return values[:middle], values[middle:]


def _finite(series: Series) -> list[float]:
    return list(filter(math.isfinite, series.tail(WINDOW)))


def _error(values: list[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))

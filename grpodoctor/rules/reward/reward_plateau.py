"""REW001."""

from __future__ import annotations

import math
import statistics
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite, cite_all
from grpodoctor.rules.shared.health.run_health import (
    has_improved,
    is_near_ceiling,
    is_solved,
    lacks_signal,
    share_lost,
)
from grpodoctor.rules.shared.health.whole_run import never_moved, quarter_means
from grpodoctor.rules.shared.outcome.flat_outcome import outcome_rose
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.estimators import level_shift, median
from grpodoctor.runs.series import Series
from grpodoctor.vocabulary.conditions import Condition

_ACCURACY = "accuracy/train"
_REWARD = "reward/mean"
_HELDOUT = ("accuracy/heldout", "reward/heldout")


class RewardPlateau(Rule):
    """Accuracy or reward has not risen for a long time and is below its ceiling.

    What it sees:
        A hundred readings whose second half is no higher than the first, below the ceiling and
        without a rise on held-out prompts. The finding is `info` if the run learned before. It is a
        warning if it never did and held-out evaluation confirms it, or if five hundred readings,
        which is the whole run, show no rise although the reward varies. Otherwise REW020 notes a
        run that never rose.

    Why it matters:
        The run spends compute without progress. The causes differ: a reward that rejects correct
        answers, steps or groups that are too small, prompts of the wrong difficulty, too little
        entropy left, or a number format of the weights that rounds the updates away.

    Evidence it needs:
        `accuracy/train` or `reward/mean` for a hundred steps. Optional, for a warning: held-out
        evaluation.

    Remedies:
        Check the reward function on known answers; look at the GRP findings and at ENT001.

    When it is wrong:
        Each batch holds other prompts, so a flat training curve with a rising held-out one is
        normal; without held-out evaluation nothing warns for five hundred readings. A run that is
        flat after a collapse is reported by REW002. Logs that repeat a value over many rows look
        flatter than the run was.

    References:
        Cui et al. 2025, arXiv 2505.22617, for plateaus that entropy explains.
    """

    code: ClassVar[str] = "REW001"
    name: ClassVar[str] = "reward-plateau"
    condition: ClassVar[Condition] = "plateau"
    summary: ClassVar[str] = "Accuracy or reward has not risen for a long time."
    inputs: ClassVar[tuple[Need, ...]] = ((_ACCURACY, _REWARD),)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward", "raise-temperature", "harder-prompts")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2505.22617",)
    persistence: ClassVar[int] = 2
    clearance: ClassVar[int] = 5
    cadence: ClassVar[int] = 10

    half_window: int = 50
    """Readings in each half. In small runs learning shows within twenty steps, in large ones within
    a hundred."""
    min_rise: float = 2.0
    """Standard errors by which the second half must be higher to count as rising; nineteen of
    twenty flat curves stay below."""
    possible_rise: float = 0.05
    """Share by which the second half may be higher in a warning. A noisy reward that gained more
    may be rising, and stays `info`."""
    min_heldout_rise: float = 1.0
    """The same for held-out evaluations, which are few: a healthy slow run reached 1.5 over 23 of
    them. They confirm a plateau only if they do not rise at all."""
    long_run: int = 500
    """Readings of a whole run without a rise that need no held-out evaluation: five times those
    within which large runs show learning, and the batches of so many steps average out."""
    max_trend: float = 1.0
    """Standard score of the trend of such a run; chance alone exceeds it in one of six runs."""
    collapse_loss: float = 0.35
    """Share of the best outcome above whose loss REW002 reports a collapse instead."""
    min_evaluations: int = 3
    """Minimum held-out evaluations in each half of the window."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the halves of a long window."""
        name = _ACCURACY if chart.is_fresh(_ACCURACY) else _REWARD
        series = chart.series(name)
        if len(series) < 2 * self.half_window:
            return None
        values = series.tail(2 * self.half_window)
        if not any(values):
            return None
        if is_solved(chart) or is_near_ceiling(series):
            return None
        if share_lost(series) >= self.collapse_loss or self._is_rising(series):
            return None
        if name == _ACCURACY and self._is_rising(chart.series(_REWARD)):
            return None  # REW005 reports it
        heldout = self._heldout_shift(chart, since=series.steps(2 * self.half_window)[0])
        if heldout is not None and heldout >= self.min_heldout_rise:
            return None
        if heldout is None and self._never_rose(chart, series):
            return self._long_sighting(chart, name)
        is_confirmed = heldout is not None and heldout <= 0
        if not is_confirmed and not outcome_rose(chart):
            return None  # REW020 reports it, with what the log shows of the reason
        return self._sighting(chart, name, is_confirmed=is_confirmed)

    def _never_rose(self, chart: Chart, series: Series) -> bool:
        """Whether the whole of a long run shows no rise, although rewards differ."""
        if series.readings < self.long_run or lacks_signal(chart) or never_moved(series):
            return False
        return series.trend <= self.max_trend and has_improved(chart) is False

    def _long_sighting(self, chart: Chart, name: str) -> Sighting:
        series = chart.series(name)
        first, last = quarter_means(series)
        noun = "Accuracy" if name == _ACCURACY else "Reward"
        text = (
            f"{noun} has not risen in {series.readings} readings: its first quarter "
            f"averages {first:.3g}, its last {last:.3g}."
        )
        first_step = series.first_step
        return Sighting("warning", text, cite_all(chart, name), find_onset=lambda: first_step)

    def _is_rising(self, series: Series) -> bool:
        values = series.tail(2 * self.half_window)
        if len(values) < 2 * self.half_window:
            return False
        before, after = values[: self.half_window], values[self.half_window :]
        if not median(after) > median(before):
            return False  # saves the spreads
        return level_shift(before, after) >= self.min_rise

    def _is_higher(self, chart: Chart, name: str) -> bool:
        """Whether the second half is higher by a share that noise could explain."""
        values = chart.series(name).tail(2 * self.half_window)
        before, after = values[: self.half_window], values[self.half_window :]
        return sum(after) > (1 + self.possible_rise) * sum(before) > 0

    def _heldout_shift(self, chart: Chart, *, since: int) -> float | None:
        for name in _HELDOUT:
            values = chart.series(name).since(since)
            middle = len(values) // 2
            if middle >= self.min_evaluations:
                return level_shift(values[:middle], values[middle:])
        return None

    def _sighting(self, chart: Chart, name: str, *, is_confirmed: bool) -> Sighting:
        # The mean, since rewards of few responses take few values, and their median is one of them.
        recent = chart.series(name).tail(self.half_window)
        level = statistics.fmean([value for value in recent if math.isfinite(value)])
        start = chart.baseline(name)
        noun = "Accuracy" if name == _ACCURACY else "Reward"
        is_higher = self._is_higher(chart, name)
        beyond = " beyond its noise" if is_higher else ""
        text = f"{noun} ({level:.3g}) has not risen{beyond} for {2 * self.half_window} readings"
        if is_confirmed:
            text += ", nor has held-out evaluation"
        evidence = (cite(chart, name, start.level if start else None), *cite_all(chart, *_HELDOUT))
        if is_confirmed and has_improved(chart) is False and not is_higher:
            text += "; it is at its starting value."
            return Sighting("warning", text, evidence)
        return Sighting("info", f"{text}.", evidence)

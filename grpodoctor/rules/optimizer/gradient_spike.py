"""OPT002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite
from grpodoctor.runs.chart import Chart, Series
from grpodoctor.runs.estimators import robust_level
from grpodoctor.vocabulary.conditions import Condition

_GRADIENT = "optimizer/grad_norm"
_ZERO_VARIANCE = "groups/zero_variance_rate"
_SPREADS = ("groups/reward_std", "reward/std")


@dataclass(frozen=True)
class GradientSpike(Rule):
    """The gradient norm jumps far above its recent range.

    What it sees:
        A gradient norm that is many times its recent median and many robust standard deviations
        above it. A single spike is `info`; several within a short time are a warning.

    Why it matters:
        Single outlier batches happen, and gradient clipping handles them. Repeated spikes often
        precede a collapse: ratios explode, a few tokens dominate the loss, or the learning rate is
        too high.

    Evidence it needs:
        `optimizer/grad_norm`, before clipping.

    Remedies:
        Lower the learning rate, make fewer updates per batch. If the sampler disagrees with the
        learner (MIS001), correct for it.

    When it is wrong:
        The gradient noise depends on the batch size. A run whose gradient is mostly zero (OPT001)
        has no range to compare with: the rule leaves out zeros, and batches in which all rewards
        are equal, whose gradient comes from a penalty.

    References:
        PPO, arXiv 1707.06347, for what the clip bounds and what it does not.
    """

    code: ClassVar[str] = "OPT002"
    name: ClassVar[str] = "gradient-spike"
    condition: ClassVar[Condition] = "gradient-spike"
    summary: ClassVar[str] = "The gradient norm jumps far above its recent range."
    inputs: ClassVar[tuple[Need, ...]] = (_GRADIENT,)
    remedies: ClassVar[tuple[str, ...]] = ("lower-learning-rate", "fewer-updates")
    references: ClassVar[tuple[str, ...]] = ("arXiv 1707.06347",)
    persistence: ClassVar[int] = 1

    median_factor: float = 10.0
    """Multiple of the recent median. Healthy public runs reached 11 times their mean once in 250
    steps, and 6 times otherwise."""
    min_deviations: float = 10.0
    """Robust standard deviations, for runs whose gradient is always noisy."""
    percentile_factor: float = 3.0
    """Multiple of the 90th percentile, for gradients that alternate between small and large because
    few groups of a batch vary. Healthy public runs reached 30 times their median at every third
    step, but no more than 2 times their 90th percentile."""
    percentile: float = 0.9
    """Percentile of the recent readings for `percentile_factor`: a level that more than a tenth of
    them exceed is no spike."""
    window: int = 50
    """Readings that make the recent range."""
    min_readings: int = 10
    """Minimum number of nonzero gradients that make a range."""
    warning_spikes: int = 3
    """Spikes among the latest `spike_window` readings that make a warning."""
    spike_window: int = 20
    """Readings within which spikes count as repeated."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the current gradient norm with the range of the earlier ones."""
        series = chart.series(_GRADIENT)
        # A cheap check that avoids reading the window in nearly every step.
        if len(series) <= self.min_readings or series.last < self.median_factor / 2 * series.level(
            9
        ):
            return None
        earlier = self._informative_gradients(chart, series)
        if len(earlier) < self.min_readings:
            return None
        level, spread = robust_level(earlier)
        percentile = sorted(earlier)[int(self.percentile * len(earlier))]
        threshold = max(
            self.median_factor * level,
            level + self.min_deviations * spread,
            self.percentile_factor * percentile,
        )
        if not series.last > threshold:
            return None
        spikes = sum(value > threshold for value in series.tail(self.spike_window))
        evidence = (cite(chart, _GRADIENT, level),)
        text = f"The gradient norm is {series.last / level:.0f} times its recent median"
        if spikes < self.warning_spikes:
            return Sighting("info", f"{text}.", evidence, ())
        text = f"{text}; {spikes} spikes in {self.spike_window} readings."
        return Sighting("warning", text, evidence)

    def _informative_gradients(self, chart: Chart, series: Series) -> list[float]:
        """Earlier gradient norms, without those of batches in which all rewards were equal."""
        recent = zip(series.steps(self.window)[:-1], series.tail(self.window)[:-1], strict=True)
        uninformative = _steps_without_variance(chart)
        return [value for step, value in recent if value > 0 and step not in uninformative]


def _steps_without_variance(chart: Chart) -> set[int]:
    """Steps whose batch had equal rewards: any gradient there comes from a penalty."""
    zero_variance = {step for step, value in chart.series(_ZERO_VARIANCE) if value == 1}
    zero_std = {step for name in _SPREADS for step, value in chart.series(name) if value == 0}
    return zero_variance | zero_std

"""OPT002."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Evidence, Need, Rule, RuleResult, Sighting, cite
from grpodoctor.rules.shared.health.run_health import has_lost_outcome
from grpodoctor.rules.shared.shapes.spikes import WINDOW, SpikeLimits, joint_spike
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.estimators import robust_level
from grpodoctor.runs.series import Series
from grpodoctor.vocabulary.conditions import Condition

_GRADIENT = "optimizer/grad_norm"
_LOSS = "optimizer/loss"
_ZERO_VARIANCE = "groups/zero_variance_rate"
_SPREADS = ("groups/reward_std", "reward/std")


class GradientSpike(Rule):
    """The gradient norm jumps far above its recent range.

    What it sees:
        A gradient norm that is many times its recent median and many robust standard deviations
        above it. A single spike is `info`; several within a short time are a warning. A spike of a
        hundred times the median is a warning by itself, from the fifth reading on. It is critical
        if a KL divergence, the largest ratio or the loss spikes at the same step, and the spike is
        not the first one or the outcome has fallen.

    Why it matters:
        Single outlier batches happen, and gradient clipping handles them. Repeated spikes often
        precede a collapse: ratios explode, a few tokens dominate the loss, or the learning rate is
        too high. A spike of gradient and KL together has already moved the policy. A report names
        it as the cause of a fall of the reward, or of a KL to the reference, that began with it.

    Evidence it needs:
        `optimizer/grad_norm`, before clipping. Optional: KL divergences, `ratio/max` and
        `optimizer/loss`.

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
    start_factor: float = 2.0
    """Multiple of the starting value. In a run that has nearly solved its prompts most gradients
    are tiny, and a batch with signal has a gradient as large as at the start."""
    vanished_share: float = 0.1
    """Recent median as a share of the starting value below which repeated spikes are batches with
    signal among batches without, unless the outcome has fallen."""
    extreme_factor: float = 100.0
    """Multiple of the median, and ten times the 90th percentile, that healthy runs do not show
    even once."""
    min_readings: int = 10
    """Minimum number of nonzero gradients that make a range."""
    min_early_readings: int = 5
    """The same for a spike of `extreme_factor`."""
    critical_spikes: int = 2
    """Spikes of gradient and KL together that are critical. One public run had a single one and
    recovered."""
    warning_spikes: int = 3
    """Spikes among the latest `spike_window` readings that make a warning."""
    spike_window: int = 20
    """Readings within which spikes count as repeated."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the current gradient norm with the range of the earlier ones."""
        series = chart.series(_GRADIENT)
        # Cheap checks that avoid reading the window in nearly every step.
        near, last = self.median_factor / 2, series.last
        if len(series) <= self.min_early_readings or 0 <= last < near * series.window_min():
            return None
        if last < near * series.level(9):
            return None
        earlier = self._informative_gradients(chart, series)
        if len(earlier) < self.min_early_readings:
            return None
        level, _ = robust_level(earlier)
        percentile = sorted(earlier)[int(0.9 * len(earlier))]
        is_extreme = series.last > self.extreme_factor * max(level, percentile / 10)
        is_extreme = is_extreme and not self._has_vanished(chart, level)
        is_early = len(earlier) < self.min_readings
        if is_early and not (is_extreme and series.last > 10 * max(earlier)):
            return None
        limits = SpikeLimits(self.median_factor, self.min_deviations, self.percentile_factor)
        start = series.start.level if series.start else 0.0
        threshold = max(limits.threshold(earlier), self.start_factor * start)
        if not series.last > threshold:
            return None
        spikes = sum(value > threshold for value in series.tail(self.spike_window))
        return self._sighting(chart, level, spikes, is_extreme=is_extreme)

    def _sighting(self, chart: Chart, level: float, spikes: int, *, is_extreme: bool) -> Sighting:
        multiple = chart.series(_GRADIENT).last / level
        evidence: tuple[Evidence, ...] = (cite(chart, _GRADIENT, level),)
        text = f"The gradient norm is {multiple:.0f} times its recent median"
        joint = joint_spike(chart, _LOSS) if is_extreme else None
        if joint is not None:
            is_grave = spikes >= self.critical_spikes or has_lost_outcome(chart)
            text = f"{text}, and {joint} spikes too."
            evidence = (*evidence, cite(chart, joint))
            return Sighting("critical" if is_grave else "warning", text, evidence)
        if is_extreme:
            return Sighting("warning", f"{text}.", evidence)
        if spikes < self.warning_spikes or self._has_vanished(chart, level):
            return Sighting("info", f"{text}.", evidence, ())
        text = f"{text}; {spikes} spikes in {self.spike_window} readings."
        return Sighting("warning", text, evidence)

    def _has_vanished(self, chart: Chart, level: float) -> bool:
        """Whether most gradients are far below the first ones, and the outcome is kept."""
        start = chart.series(_GRADIENT).start
        is_small = start is not None and level < self.vanished_share * start.level
        return is_small and not has_lost_outcome(chart)

    def _informative_gradients(self, chart: Chart, series: Series) -> list[float]:
        """Earlier gradient norms, without those of batches in which all rewards were equal."""
        recent = zip(series.steps(WINDOW)[:-1], series.tail(WINDOW)[:-1], strict=True)
        uninformative = _steps_without_variance(chart)
        return [value for step, value in recent if value > 0 and step not in uninformative]


def _steps_without_variance(chart: Chart) -> set[int]:
    """Steps whose batch had equal rewards: any gradient there comes from a penalty."""
    zero_variance = {step for step, value in chart.series(_ZERO_VARIANCE) if value == 1}
    zero_std = {step for name in _SPREADS for step, value in chart.series(name) if value == 0}
    return zero_variance | zero_std

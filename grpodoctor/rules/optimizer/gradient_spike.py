"""OPT002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite
from grpodoctor.runs.chart import Chart, Series
from grpodoctor.runs.estimators import robust_level

_GRADIENT = "optimizer/grad_norm"
_FLAT = "groups/zero_variance_rate"
_SPREADS = ("groups/reward_std", "reward/std")


@dataclass(frozen=True)
class GradientSpike(Rule):
    """The gradient norm jumps far out of its own recent range.

    What it sees:
        A gradient many times its recent median and many deviations away from it. One alone is a
        note; several within a short while are a warning.

    Why it matters:
        One outlier batch happens, and gradient clipping deals with it. Spikes that come again
        announce a policy that is breaking: ratios that explode, a few tokens that carry the whole
        loss, a learning rate that is too high.

    Evidence it needs:
        `optimizer/grad_norm`, before clipping.

    Remedies:
        Lower the learning rate, make fewer updates on each batch; where the sampler disagrees with
        the learner (MIS001), correct for it.

    When it is wrong:
        Batches of different size have gradients of different noise. A run whose gradient is mostly
        zero (OPT001) has no range to jump out of: zeros are left out, and so are batches in which
        no reward differed from another, whose gradient is that of a penalty.

    References:
        PPO, arXiv 1707.06347, for what the clip bounds and what it does not.
    """

    code: ClassVar[str] = "OPT002"
    name: ClassVar[str] = "gradient-spike"
    summary: ClassVar[str] = "The gradient norm jumps far out of its own recent range."
    inputs: ClassVar[tuple[Need, ...]] = (_GRADIENT,)
    remedies: ClassVar[tuple[str, ...]] = ("lower-learning-rate", "fewer-updates")
    references: ClassVar[tuple[str, ...]] = ("arXiv 1707.06347",)
    persistence: ClassVar[int] = 1

    times: float = 10.0
    """Times the recent median. Healthy runs of strangers were seen up to 11 times their mean once
    in 250 steps, and 6 times otherwise."""
    deviations: float = 10.0
    """Robust deviations, for runs whose gradient is noisy as a habit."""
    beyond: float = 3.0
    """Times the usual top, for gradients that are small and large by turns, as where few groups of
    a batch vary at all: healthy runs of strangers were seen at 30 times their median, but no more
    than 2 times their usual top, at every third step."""
    tops: float = 0.9
    """Share of the recent readings below the usual top: what more than a tenth of them are above is
    no spike."""
    window: int = 50
    """Readings that make the recent range."""
    fewest: int = 10
    """Gradients other than zero that make a range at all."""
    again: int = 3
    """Spikes among the latest `repeated_within` that make a warning."""
    repeated_within: int = 20
    """Readings within which spikes count as coming again."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the present gradient with the range of those before it."""
        series = chart.series(_GRADIENT)
        # A glance at few readings spares the window in nearly every step.
        if len(series) <= self.fewest or series.last < self.times / 2 * series.level(9):
            return None
        before = self._alive(chart, series)
        if len(before) < self.fewest:
            return None
        level, spread = robust_level(before)
        usual = sorted(before)[int(self.tops * len(before))]
        bar = max(self.times * level, level + self.deviations * spread, self.beyond * usual)
        if not series.last > bar:
            return None
        spikes = sum(value > bar for value in series.tail(self.repeated_within))
        evidence = (cite(chart, _GRADIENT, level),)
        text = f"the gradient norm is {series.last / level:.0f} times its recent median"
        if spikes < self.again:
            return Sighting("info", f"{text}, once", evidence, ())
        text = f"{text}, {spikes} times within {self.repeated_within} readings"
        return Sighting("warning", text, evidence)

    def _alive(self, chart: Chart, series: Series) -> list[float]:
        """The gradients before this one, without those of batches in which nothing varied."""
        recent = zip(series.steps(self.window)[:-1], series.tail(self.window)[:-1], strict=True)
        idle = _idle_steps(chart)
        return [value for step, value in recent if value > 0 and step not in idle]


def _idle_steps(chart: Chart) -> set[int]:
    """Steps whose batch had no spread of rewards: what gradient they have is a penalty's alone."""
    flat = {step for step, value in chart.series(_FLAT) if value == 1}
    even = {step for name in _SPREADS for step, value in chart.series(name) if value == 0}
    return flat | even

"""OPT002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, Sighting, Verdict, cite
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.estimators import robust_level

_GRADIENT = "optimiser/grad_norm"


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
        `optimiser/grad_norm`, before clipping.

    Remedies:
        Lower the learning rate, make fewer updates on each batch; where the sampler disagrees with
        the learner (MIS001), correct for it.

    When it is wrong:
        Batches of different size have gradients of different noise. A run whose gradient is mostly
        zero (OPT001) has no range to jump out of: zeros are left out.

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
    window: int = 50
    """Readings that make the recent range."""
    fewest: int = 10
    """Gradients other than zero that make a range at all."""
    again: int = 3
    """Spikes among the latest `repeated_within` that make a warning."""
    repeated_within: int = 20
    """Readings within which spikes count as coming again."""

    def examine(self, chart: Chart) -> Verdict:
        """Compare the present gradient with the range of those before it."""
        series = chart.series(_GRADIENT)
        # A glance at few readings spares the window in nearly every step.
        if len(series) <= self.fewest or series.last < self.times / 2 * series.level(9):
            return None
        before = [value for value in series.tail(self.window)[:-1] if value > 0]
        if len(before) < self.fewest:
            return None
        level, spread = robust_level(before)
        bar = level + max((self.times - 1) * level, self.deviations * spread)
        if not series.last > bar:
            return None
        spikes = sum(value > bar for value in series.tail(self.repeated_within))
        evidence = (cite(chart, _GRADIENT, level),)
        text = f"the gradient norm is {series.last / level:.0f} times its recent median"
        if spikes < self.again:
            return Sighting("info", f"{text}, once", evidence, ())
        text = f"{text}, {spikes} times within {self.repeated_within} readings"
        return Sighting("warning", text, evidence)

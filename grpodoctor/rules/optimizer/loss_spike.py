"""OPT004."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite
from grpodoctor.rules.shared.outcome.flat_outcome import reference_kl
from grpodoctor.rules.shared.shapes.spikes import WINDOW, SpikeLimits, joint_spike
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_LOSS = "optimizer/loss"
_GRADIENT = "optimizer/grad_norm"
_COUNTED = 10_000
"""Multiple from which the exact one says nothing."""


class LossSpike(Rule):
    """The loss jumps far away from its recent range.

    What it sees:
        A loss whose distance from its recent median is many times the usual one. A single spike is
        `info`; several within a short time are a warning. A spike of a hundred times the usual
        distance is a warning if a KL divergence, the largest ratio or the gradient spikes at the
        same step. Several such spikes within the latest hundred readings are a warning too, if they
        exceed what a clipped loss with normalized advantages can reach, and two if the KL to the
        reference exceeds a hundred nats at these steps. So is a single one that no bounded ratio
        explains, be the loss a mean or a sum; above ten billion it is critical, and needs no
        earlier readings.

    Why it matters:
        The level of a policy-gradient loss means nothing, but its scale is bounded, because
        advantages are normalized and the clip bounds the ratio. A jump means that a bound did not
        hold: a ratio with a negative advantage exploded, a penalty dominates the loss, or the loss
        is divided by far fewer tokens than usual.

    Evidence it needs:
        `optimizer/loss`. Optional: KL divergences, `ratio/max` and `optimizer/grad_norm`.

    Remedies:
        Lower the learning rate or make fewer updates per batch; bound the ratio for negative
        advantages (dual clip). Look at the sequence with the largest ratio.

    When it is wrong:
        A log that rounds the loss to four decimals shows zeros and then a small number. The rule
        leaves out zeros and needs ten other readings. Batches of different size change the scale of
        a loss that is a sum.

    References:
        Dual-clip PPO, arXiv 1912.09729; PPO, arXiv 1707.06347.
    """

    code: ClassVar[str] = "OPT004"
    name: ClassVar[str] = "loss-spike"
    condition: ClassVar[Condition] = "gradient-spike"
    summary: ClassVar[str] = "The loss jumps far away from its recent range."
    inputs: ClassVar[tuple[Need, ...]] = (_LOSS,)
    remedies: ClassVar[tuple[str, ...]] = ("lower-learning-rate", "fewer-updates")
    references: ClassVar[tuple[str, ...]] = ("arXiv 1912.09729", "arXiv 1707.06347")
    persistence: ClassVar[int] = 1

    median_factor: float = 20.0
    """Multiple of the usual distance: twice that of OPT002, since the distances of a signed loss
    scatter more. A healthy public run had one of 30, together with a spike of its KL penalty."""
    min_deviations: float = 20.0
    """Robust standard deviations above the usual distance."""
    percentile_factor: float = 5.0
    """Multiple of the 90th percentile of the distances."""
    extreme_factor: float = 100.0
    """Multiple of the usual distance; see OPT002."""
    min_distance: float = 1e-3
    """Distance below which no spike counts. Normalized advantages give a loss a scale of 1. A loss
    a thousand times smaller is a rest of centered advantages and a KL penalty."""
    min_readings: int = 10
    """Minimum number of nonzero losses that make a range."""
    warning_spikes: int = 3
    """Spikes among the latest `spike_window` readings that make a warning."""
    spike_window: int = 20
    """Readings within which spikes count as repeated."""
    largest_loss: float = 10.0
    """Distance that only an unbounded ratio or penalty explains: an advantage normalized within a
    group of 64 responses is at most 8, and a clipped ratio adds a quarter."""

    unbounded_factor: float = 1e5
    """Multiple of the usual distance that only an unbounded ratio explains. A token adds at most
    `largest_loss`. The sum over 100,000 tokens of random sign is usually at least 100 and at most a
    million, ten thousand times as much; for a mean, both are smaller by the number of tokens. Two
    public runs with a loss that is a sum had -6e9 after 2e3, and 6e11."""

    impossible_loss: float = 1e10
    """A loss that no bounded ratio gives in any batch, without readings to compare it with: the sum
    over a billion tokens of `largest_loss` each. A public run had 1e20 at its fifth reading."""

    penalty_kl: float = 100.0
    """Nats per token of a reading to which single tokens without probability in one of the models
    add nearly all: ten times the divergence from a uniform choice. Of the public runs that log it
    and a reward, one exceeded 12: it reached 3395 with a loss of 3.4, usually .002."""
    penalty_readings: int = 2
    """Number of readings with an extreme loss that makes a warning."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the distance of the loss from its median with the usual distance."""
        series = chart.series(_LOSS)
        if self.impossible_loss < abs(series.last) < math.inf:
            return self._impossible(chart)
        # A cheap check that avoids reading the window in nearly every step.
        if len(series) <= self.min_readings or abs(series.last) < 5 * abs(series.level(9)):
            return None
        recent = series.tail(WINDOW)
        earlier = [value for value in recent[:-1] if value]
        if len(earlier) < self.min_readings:
            return None
        earlier.sort()
        middle = statistics.median(earlier)
        distance, has_penalties = abs(series.last - middle), self._has_penalties(chart)
        if not has_penalties and self._is_usual(earlier, middle, distance):
            return None
        distances = [abs(value - middle) for value in earlier]
        usual = statistics.median(distances)
        if usual and has_penalties:
            penalties = self._penalties(chart, middle, self.extreme_factor * usual)
            if penalties is not None:
                return penalties
        limits = SpikeLimits(self.median_factor, self.min_deviations, self.percentile_factor)
        threshold = limits.threshold(distances)
        extreme = max(self.extreme_factor * usual, self.largest_loss)
        bursts = sum(distance > extreme for distance in distances) + (distance > extreme)
        if usual and distance > extreme and bursts >= self.warning_spikes:
            return self._burst(chart, middle, bursts, len(earlier) + 1)
        if not distance > max(threshold, self.min_distance) or not usual:
            return None
        spikes = sum(
            abs(value - middle) > max(threshold, self.min_distance)
            for value in recent[-self.spike_window :]
        )
        return self._sighting(chart, distance / usual, middle, spikes)

    def _is_usual(self, ascending: Sequence[float], middle: float, distance: float) -> bool:
        """Whether the usual distance, which takes longer, makes this one no spike.

        It does if more than half of the losses are at least as far away as the limit allows.
        """
        near = distance / self.median_factor
        low, high = bisect_right(ascending, middle - near), bisect_left(ascending, middle + near)
        return 2 * (high - low) < len(ascending)

    def _has_penalties(self, chart: Chart) -> bool:
        """Whether single tokens dominate the KL divergence at this step."""
        name = reference_kl(chart)
        return name is not None and chart.series(name).last >= self.penalty_kl

    def _impossible(self, chart: Chart) -> Sighting:
        last, name = chart.series(_LOSS).last, reference_kl(chart)
        kl = chart.series(name).last if name else 0.0
        cause = f", with a KL to the reference of {kl:.2g}" if abs(kl) > self.largest_loss else ""
        text = f"The loss is {last:.2g}{cause}: a ratio or a penalty is without bound."
        start = chart.baseline(_LOSS)
        evidence = [cite(chart, _LOSS, start.level if start else None)]
        if cause and name:
            evidence.append(cite(chart, name))
        return Sighting("critical", text, tuple(evidence))

    def _penalties(self, chart: Chart, middle: float, extreme: float) -> Sighting | None:
        """Extreme losses at readings of the KL divergence that single tokens dominate."""
        name = reference_kl(chart) or ""
        losses = dict(chart.series(_LOSS))
        spikes = [
            (abs(losses[step]), kl)
            for step, kl in chart.series(name)
            if kl >= self.penalty_kl and abs(losses.get(step, middle) - middle) > extreme
        ]
        if len(spikes) < self.penalty_readings:
            return None
        loss, kl = max(spikes)
        text = (
            f"The loss jumped {len(spikes)} times, to {loss:.2g} (usually {middle:.2g}) "
            f"at a KL to the reference of {kl:.2g} nats."
        )
        return Sighting("warning", text, (cite(chart, _LOSS, middle), cite(chart, name)))

    def _burst(self, chart: Chart, middle: float, bursts: int, readings: int) -> Sighting:
        """Extreme losses that return: between them the loss looks ordinary."""
        text = (
            f"The loss jumped to {chart.series(_LOSS).last:.3g}, usually {middle:.2g}; "
            f"{bursts} such spikes in {readings} readings."
        )
        return Sighting("warning", text, (cite(chart, _LOSS, middle),))

    def _sighting(self, chart: Chart, multiple: float, middle: float, spikes: int) -> Sighting:
        evidence = (cite(chart, _LOSS, middle),)
        shown = f"{multiple:.0f}" if multiple < _COUNTED else f"over {_COUNTED:,}"
        text = f"The loss is {shown} times its usual distance from the median"
        joint = joint_spike(chart, _GRADIENT) if multiple >= self.extreme_factor else None
        if joint is not None:
            text = f"{text}, and {joint} spikes too."
            return Sighting("warning", text, (*evidence, cite(chart, joint)))
        if multiple >= self.unbounded_factor:
            text = f"{text}: a ratio without bound."
            return Sighting("warning", text, evidence)
        if spikes < self.warning_spikes:
            return Sighting("info", f"{text}.", evidence, ())
        return Sighting(
            "warning", f"{text}; {spikes} spikes in {self.spike_window} readings.", evidence
        )

"""ENT002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.run_health import fresh_of, has_improved, outcome_lost, outcome_of
from grpodoctor.runs.chart import Chart, Series

_ENTROPY = ("entropy/mean", "entropy/sampled")
_LATEST = 5


@dataclass(frozen=True)
class EntropyExplosion(Rule):
    """The policy's entropy has risen far above its own start.

    What it sees:
        Entropy at one and a half times the run's own start or more, beyond its noise. Critical when
        the outcome was lost with it; a note only, and later, when the outcome rose.

    Why it matters:
        Reinforcement learning with a useful signal sharpens a policy or holds its entropy. A policy
        that grows noisier is being pushed away from what it knew: by log-probabilities of another
        policy in the ratio, by a reward without information, by an entropy bonus that outweighs the
        reward, or by steps that are too large.

    Evidence it needs:
        `entropy/mean`, or `entropy/sampled`, which estimates it. Better with `accuracy/train` or
        `reward/mean`.

    Remedies:
        First see whether MIS002 or OPT002 stand beside it: then their remedy is the cause's. Else
        lower the learning rate, sample at a lower temperature, hold the policy by a KL penalty.

    When it is wrong:
        Exploration that rises slowly while the outcome rises is wanted, which is why it is a note
        then, and why a reward with the wrong sign passes where nothing else judges the answers. A
        start from a nearly deterministic policy multiplies its entropy easily; a rise below
        a tenth of a nat is ignored.

    References:
        DAPO, arXiv 2503.14476; Cui et al. 2025, arXiv 2505.22617.
    """

    code: ClassVar[str] = "ENT002"
    name: ClassVar[str] = "entropy-explosion"
    summary: ClassVar[str] = "Entropy rose far above its own start."
    inputs: ClassVar[tuple[Need, ...]] = (_ENTROPY,)
    remedies: ClassVar[tuple[str, ...]] = (
        "lower-learning-rate",
        "lower-temperature",
        "kl-penalty",
    )
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476", "arXiv 2505.22617")
    clearance: ClassVar[int] = 20

    risen: float = 1.5
    """Times the start. A small run that takes a quantised sampler's log-probabilities for the old
    policy goes from .5 to .87 nats, one with a random reward to .67; healthy ones fall."""
    risen_with_outcome: float = 2.5
    """Times the start where the outcome rose too: then it is exploration, up to a point."""
    nats: float = 0.1
    """Smallest rise that counts: below it lies the noise of small batches (.02 a step)."""
    spreads: float = 4.0
    """Rise in spreads of the start: a noisy start must not look like an explosion."""
    burst: float = 5.0
    """Times the first three readings, for a run that bursts before it has a baseline: one of
    strangers went from .17 to 8 nats within thirty steps."""
    chaos: float = 1.0
    """Nats by which it must have risen then: policies that reason were never seen to gain them."""
    lost: float = 0.5
    """Share of the best outcome whose loss makes it critical."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the present entropy with its start."""
        name = fresh_of(chart, _ENTROPY)
        series = chart.series(name)
        level, start = series.level(_LATEST), series.baseline
        times = self._times(series, level)
        if start is None or times is None:
            return None
        severity, beside = self._judge(chart, times)
        if severity is None:
            return None
        text = f"entropy is {times:.1f} times its start {beside}"
        return Sighting(severity, text, cite_all(chart, name, outcome_of(chart)))

    def _times(self, series: Series, level: float) -> float | None:
        """How many times its start entropy is; None where it has not risen."""
        start, opening = series.baseline, series.opening
        if start is None or opening is None or start.level <= 0:
            return None
        if series.last < min(start.level, opening.level * self.burst):
            return None
        rise, times = level - start.level, level / start.level
        if times >= self.risen and rise > max(self.nats, self.spreads * start.spread):
            return times
        first = opening.level
        if first <= 0 or start.level < self.burst / 2 * first:  # what followed was no burst
            return None
        burst = level >= self.burst * first and level - first >= self.chaos
        return level / first if burst else None

    def _judge(self, chart: Chart, times: float) -> tuple[Severity | None, str]:
        lost = outcome_lost(chart)
        if lost >= self.lost:
            return "critical", f"and {lost:.0%} of the outcome is lost"
        if has_improved(chart):
            severity: Severity | None = "info" if times >= self.risen_with_outcome else None
            return severity, "while the outcome rose"
        return "warning", "and the outcome did not rise"

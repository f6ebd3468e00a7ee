"""ENT002."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import (
    ENTROPY_METRICS,
    current_metric,
    fall_text,
    first_step_where,
    has_improved,
    outcome_lost,
    outcome_metric,
    outcome_noun,
)
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW, Series
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.values import NotApplicable

_LATEST = 5
_NOT_PER_TOKEN = NotApplicable(
    "the entropy exceeds that of any vocabulary, so it is no mean over tokens"
)

_OF_RISE = (
    "lower-learning-rate",
    "lower-temperature",
    "kl-penalty",
    "smaller-entropy-bonus",
)
_OF_START = ("check-loading", "lower-temperature")
"""Remedies of noise since the first reading, which no update can have caused."""


class EntropyExplosion(Rule):
    """The policy's entropy has risen far above its starting value.

    What it sees:
        Entropy at one and a half times its starting value or more, beyond its noise. The finding is
        critical if accuracy or reward fell as well. If accuracy or reward rose, the finding is
        `info` and requires a larger rise of entropy. It is `info` as well if the policy is still
        nearly greedy, below .325 nats per token. Without any comparison, entropy near that of a
        uniform choice among all tokens is critical: the policy writes noise. If it did so at the
        first reading, no update is the cause, and the weights were probably not loaded.

    Why it matters:
        Reinforcement learning with a useful signal lowers entropy or leaves it unchanged. Rising
        entropy means that something pushes the policy away from its trained behavior: another
        policy's log-probabilities in the ratio, a reward without information, an entropy bonus that
        outweighs the reward, or steps that are too large.

    Evidence it needs:
        `entropy/mean`, or its estimate `entropy/sampled`. Optional: `accuracy/train` or
        `reward/mean`. It must be a mean over tokens: the rule is silent above 12.6 nats.

    Remedies:
        If MIS002 or OPT002 is also reported, fix that first. If the run has an entropy bonus, lower
        it. Otherwise lower the learning rate, lower the sampling temperature, or add a KL penalty.

    When it is wrong:
        A slow rise of entropy while accuracy or reward rises is useful exploration; the finding is
        then `info`. For the same reason, the rule misses a reward with the wrong sign if no other
        metric judges the responses. If the starting policy is nearly deterministic, a tiny rise
        multiplies its entropy, so the rule ignores a rise below a tenth of a nat.

    References:
        DAPO, arXiv 2503.14476; Cui et al. 2025, arXiv 2505.22617.
    """

    code: ClassVar[str] = "ENT002"
    name: ClassVar[str] = "entropy-explosion"
    condition: ClassVar[Condition] = "entropy-rise"
    explains: ClassVar[tuple[Condition, ...]] = ("truncation",)
    summary: ClassVar[str] = "Entropy rose far above its starting value."
    inputs: ClassVar[tuple[Need, ...]] = (ENTROPY_METRICS,)
    remedies: ClassVar[tuple[str, ...]] = (*_OF_RISE, "check-loading")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476", "arXiv 2505.22617")
    clearance: ClassVar[int] = 20
    judges_levels: ClassVar[bool] = True

    min_ratio: float = 1.5
    """Multiple of the starting value. A small run with a quantized sampler's log-probabilities as
    the old policy's goes from .5 to .87 nats, one with a random reward to .67; healthy runs
    fall."""
    min_ratio_if_improving: float = 2.5
    """Multiple of the starting value where the outcome also rose, which is exploration up to a
    point."""
    min_rise: float = 0.1
    """Smallest rise that counts, above the noise of small batches (.02 per step)."""
    min_spreads: float = 4.0
    """Rise as a multiple of the starting value's spread, so that a noisy start is no explosion."""
    usual_spreads: float = 2.0
    """Spreads of the starting value above which the rise has begun; it is dated there, or later
    where a slow drift came before it."""
    min_early_ratio: float = 5.0
    """Multiple of the first three readings, for a run that explodes before it has a baseline: one
    public run went from .17 to 8 nats within thirty steps."""
    min_early_rise: float = 1.0
    """Minimum rise in nats in that case; no observed policy that reasons gained as much."""
    critical_loss: float = 0.5
    """Share of the best outcome whose loss makes the finding critical."""
    greedy_entropy: float = 0.325
    """Nats per token of a choice that takes the better of two tokens nine times in ten. A policy
    below it is nearly greedy, and writes the same text as before the rise: without a loss of the
    outcome the finding is `info`. A public run went from .11 to .24 while its reward rose."""
    noise_entropy: float = 5.2
    """Nats per token that are noise at any start: half of ln 32,000, the entropy of a uniform
    choice among the tokens of a small vocabulary. Policies that write text stay below 2."""
    largest_entropy: float = 12.6
    """Nats per token that no policy has: ln 300,000, a uniform choice among the tokens of a
    vocabulary larger than any in use. Beyond it the log has the entropy of a whole response."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the entropy with its starting value."""
        name = current_metric(chart, ENTROPY_METRICS)
        series = chart.series(name)
        level, start = series.level(_LATEST), series.baseline
        if level > self.largest_entropy:
            return _NOT_PER_TOKEN
        if level >= self.noise_entropy and len(series) >= _LATEST:
            return self._noise(chart, name, level)
        multiple = self._multiple(series, level)
        if start is None or multiple is None:
            return None
        severity, consequence = self._judge(chart, multiple, level)
        if severity is None:
            return None
        text = f"Entropy is {multiple:.1f} times its starting value{consequence}."
        evidence = cite_all(chart, name, outcome_metric(chart))
        # A rise of some dozen steps is seen near its end, after the longer responses it causes.
        usual = start.level + self.usual_spreads * start.spread
        onset = partial(_began, series, usual, (start.level, level))
        return Sighting(severity, text, evidence, _OF_RISE, find_onset=onset)

    def _noise(self, chart: Chart, name: str, level: float) -> Sighting:
        """Entropy that needs no comparison. An update is its cause only if it was lower before."""
        series = chart.series(name)
        evidence = cite_all(chart, name, outcome_metric(chart))
        text = f"Entropy is {level:.1f} nats per token"
        if series.opening is None or series.opening.level < self.noise_entropy:
            return Sighting("critical", f"{text}, so the policy writes noise.", evidence, _OF_RISE)
        text = f"{text} since the first reading, so the policy writes noise."
        first = series.steps(WINDOW)[0]
        return Sighting("critical", text, evidence, _OF_START, find_onset=lambda: first)

    def _multiple(self, series: Series, level: float) -> float | None:
        """Entropy as a multiple of its starting value; None if it has not risen enough."""
        start, opening = series.baseline, series.opening
        if start is None or opening is None or start.level <= 0:
            return None
        if series.last < min(start.level, opening.level * self.min_early_ratio):
            return None
        rise, multiple = level - start.level, level / start.level
        if multiple >= self.min_ratio and rise > max(
            self.min_rise, self.min_spreads * start.spread
        ):
            return multiple
        first = opening.level
        # The baseline must not contain the early rise itself.
        if first <= 0 or start.level < self.min_early_ratio / 2 * first:
            return None
        is_burst = level >= self.min_early_ratio * first and level - first >= self.min_early_rise
        return level / first if is_burst else None

    def _judge(self, chart: Chart, multiple: float, level: float) -> tuple[Severity | None, str]:
        if outcome_lost(chart) >= self.critical_loss:
            return "critical", f", and {fall_text(chart)}"
        noun = outcome_noun(chart)
        if has_improved(chart):
            severity: Severity | None = "info" if multiple >= self.min_ratio_if_improving else None
            return severity, f" while {noun} rose"
        if outcome_metric(chart) is None:
            return "warning", "; no reward or accuracy is logged"
        severity = "info" if level < self.greedy_entropy else "warning"
        return severity, f", and {noun} did not rise"


def _began(series: Series, usual: float, rise: tuple[float, float]) -> int:
    """The step at which a rise began.

    A rise of some dozen steps is seen near its end, after the longer responses it causes. The line
    through its first half leads back to its beginning, after any slow drift above the usual range.

    Args:
        series: the entropy.
        usual: the upper end of the usual range.
        rise: the level before and after it.
    """
    before, after = rise
    quarter, half = (
        first_step_where(series, partial(_is_above, before + share * (after - before)))
        for share in (0.25, 0.5)
    )
    return max(first_step_where(series, partial(_is_above, usual)), 2 * quarter - half)


def _is_above(threshold: float, value: float) -> bool:
    return value > threshold

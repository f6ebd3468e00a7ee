"""OPT006."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Evidence, Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import (
    ENTROPY_METRICS,
    RECENT,
    current_metric,
    first_step_where,
    fresh_metric,
    has_improved,
    has_stalled,
    level_at,
    outcome_lost,
    outcome_metric,
    outcome_noun,
)
from grpodoctor.rules.shared.shapes.trend import outcome_has_risen
from grpodoctor.rules.shared.shapes.windows import in_steps
from grpodoctor.rules.shared.updates.clip_bursts import USUAL_FACTOR, ClipBurst, clip_bursts
from grpodoctor.rules.shared.updates.first_updates import many_clipped_at_first
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW, Series
from grpodoctor.vocabulary.conditions import Condition

_SIGNED = "kl/old_policy/k1"
_UNSIGNED = "kl/old_policy/k3"
_KLS = (_UNSIGNED, _SIGNED, "kl/reference/k3", "kl/reference/k1")
_SIDES = ("clip/low_rate", "clip/high_rate")
_ANY = "clip/any_rate"
_RATE = "optimizer/learning_rate"
_OFF = "mismatch/first_ratio_off"
_OF_BURST = ("lower-learning-rate", "check-resume", "fewer-updates")
_FEWEST_AFTER = 3
"""Readings of the outcome after a burst that show what it did."""
_OF_MANY_UPDATES = ("fewer-updates", "lower-learning-rate")


class LearningRateTooHigh(Rule):
    """KL divergence and clip fraction jump together: the steps are too large.

    What it sees:
        A KL divergence (to the old policy, or to the reference) and a clip fraction that are both
        several times their lowest level, and above the level of ordinary runs, while the outcome
        falls or does not rise. In a run that has stalled for sixty readings, half of that KL
        divergence is enough, without a jump. Without a KL divergence, a learning rate of 0.002 and
        more in a run without a rise, if a fifth of the best outcome is lost, next to nothing is
        earned, or sixty readings have no rise; not if it earns half of a maximum of 1. Also a rate
        that rises fivefold from one reading to the next, after which the outcome is lost, or,
        as `info`, two thirds of the entropy. And a
        burst of clipped tokens, a tenth of a batch and twenty times the usual share, after which
        the outcome is lost at once: a resume without the optimizer's state or the warm-up, or a
        rate that ruins the run within a few steps. And first updates that clip a tenth of a token
        per nat of entropy, after which two thirds of the entropy are lost within ten steps: `info`
        if the outcome rises all the same.

    Why it matters:
        The two measure the same step in different ways, so noise in one of them does not show in
        the other. When both jump, the policy leaves the trust region within a batch. Small runs
        with a rate five times too high lose most of their accuracy within fifty steps.

    Evidence it needs:
        `kl/old_policy` or `kl/reference`, and a clip fraction; or `optimizer/learning_rate`.

    Remedies:
        Lower the learning rate, or make fewer updates per batch. A warm-up that ends at the onset
        points to the rate.

    When it is wrong:
        Stale samples and a sampler that disagrees with the learner raise both as well (MIS001,
        MIS002, SYN001); the rule reports nothing if ratios differ from 1 before any update.

    References:
        PPO, arXiv 1707.06347, appendix A, Table 4 (a step size that follows the KL divergence);
        tinker-cookbook pull request 822.
    """

    code: ClassVar[str] = "OPT006"
    name: ClassVar[str] = "learning-rate-too-high"
    condition: ClassVar[Condition] = "oversized-updates"
    summary: ClassVar[str] = "KL divergence and clip fraction jump together: steps are too large."
    inputs: ClassVar[tuple[Need, ...]] = ((*_KLS, _RATE), (*_SIDES, _ANY, _RATE))
    remedies: ClassVar[tuple[str, ...]] = ("lower-learning-rate", "fewer-updates")
    references: ClassVar[tuple[str, ...]] = ("arXiv 1707.06347",)
    persistence: ClassVar[int] = 3
    clearance: ClassVar[int] = 2 * RECENT
    judges_levels: ClassVar[bool] = True

    growth_factor: float = 3.0
    """Multiple of the lowest level at which a metric counts as having jumped."""
    min_old_kl: float = 0.01
    """KL to the old policy in nats per token. Healthy runs show .001, with sixteen cautious updates
    .004; a learning rate three times too high shows .005 to .009, one five times too high .014."""
    min_stalled_kl: float = 0.005
    """The same over the whole window of a run that does not rise: see above."""
    min_reference_kl: float = 0.2
    """KL to the reference in nats per token: twice what healthy runs of the bundled trainer reach
    in a hundred steps."""
    min_clip: float = 0.01
    """Clipped share of tokens: healthy runs clip .001 to .005."""
    signed_clip: float = 0.05
    """Clipped share that a signed KL estimate needs; see KLD001."""
    early_kl_factor: float = 2.0
    """Multiple of the KL threshold that needs no growth: some runs are too fast from the start."""
    max_rate: float = 2e-3
    """Learning rate that no published recipe reaches: full fine-tuning uses up to 1e-5, LoRA up to
    5e-4. A step of AdamW changes a typical weight of 0.02 by a tenth of it."""
    unharmed: float = 0.5
    """Mean outcome, of at most 1, at which such a rate did no harm: a policy whose weights changed
    by a tenth per step answers next to nothing. Adapters of another scale may need that rate."""
    next_to_nothing: float = 0.25
    """Mean outcome, of at most 1, below which a policy may be ruined: guesses among four choices
    earn as much. The arithmetic runs with a rate ten times too high earn .12."""
    long_run: int = 60
    """Readings after which an outcome without a rise is harm enough, as in `has_stalled`."""
    rate_jump: float = 5.0
    """Ratio of two consecutive learning rates: a linear warm-up at most doubles the rate after its
    first step. A warm restart may have it, and is the cause if the outcome falls then."""
    many_updates: float = 16
    """Updates per batch beyond those of published recipes, which take one to sixteen."""
    ordinary_rate: float = 2e-6
    """Learning rate of ordinary full fine-tuning: with many updates, it is not the cause."""
    lost_share: float = 0.2
    """Share of the best outcome whose loss counts as harm."""
    latest: int = 5
    """Readings that make the current level."""
    min_burst: float = 0.1
    """Clipped share of a burst: at least twenty times that of healthy runs. Half of it on one side,
    where the sides are logged apart, and in the first batch, which no other fault comes before."""
    ruined_share: float = 0.5
    """Share of the outcome that is lost right after a burst of a single batch, or of the first."""
    entropy_left: float = 0.35
    """Share of the entropy that such first updates leave; see `many_clipped_at_first`. A policy
    that learns keeps nearly all of it in its first ten steps."""
    min_readings: int = 8
    """Minimum readings of the outcome before it counts as not rising."""

    def examine(self, chart: Chart) -> RuleResult:
        """Require a jump of both, then a falling or flat outcome."""
        name = fresh_metric(chart, _KLS)
        sides = self._sides(chart)
        by_jump = self._by_rate_jump(chart) or self._by_burst(chart, sides)
        if name is None or not sides:
            found = by_jump or self._by_rate(chart)
        else:
            found = by_jump or self._by_steps(chart, name) or self._by_rate(chart)
        return found or self._by_first_updates(chart)

    def _by_first_updates(self, chart: Chart) -> Sighting | None:
        """Updates that clipped many tokens and took most of the entropy at once."""
        first = many_clipped_at_first(chart)
        if first is None or not first.entropy_left <= self.entropy_left:
            return None
        before, after = first.entropy
        if not chart.series(first.metrics[-1]).level(RECENT) < before / 2:
            return None
        text = (
            f"The first update clipped {first.clipped[0]:.1%} of tokens, and entropy fell from "
            f"{before:.2g} to {after:.2g} within ten steps."
        )
        evidence = cite_all(chart, *first.metrics, _RATE, outcome_metric(chart))
        severity: Severity = "info" if outcome_has_risen(chart) else "warning"
        return Sighting(severity, text, evidence, _OF_BURST, find_onset=lambda: first.step)

    def _by_burst(self, chart: Chart, sides: Sequence[str]) -> Sighting | None:
        """A few batches with huge updates that ruined the policy at once."""
        outcome = chart.series(outcome_metric(chart) or "")
        if len(outcome) < self.min_readings:
            return None
        for name in sides:
            least = self.min_burst if name == _ANY else self.min_burst / 2
            shares = chart.series(name)
            first = self._of_first_updates(chart, shares, least)
            if first is None and shares.window_max() < least:
                continue  # the usual case
            if shares.level(self.latest) >= least:
                continue  # a share that is lastingly high
            bursts = [*clip_bursts(shares, least), *([first] if first else ())]
            harmful = [(self._ruined_from(burst, outcome), burst) for burst in bursts]
            found = [(before, burst) for before, burst in harmful if before is not None]
            if found:  # after the first loss, little is left to lose
                before, burst = max(found, key=lambda each: each[0])
                return self._sighting_of_burst(chart, name, burst, before)
        return None

    def _of_first_updates(self, chart: Chart, shares: Series, least: float) -> ClipBurst | None:
        """The first batch, if its updates went far: half of a burst, or a KL that shows it."""
        share, step = shares.first_value, shares.first_step
        if share is None or share < least / 5 or step < shares.window_step:
            return None  # the usual case
        usual = shares.level(WINDOW)
        is_burst = share >= max(least / 2, USUAL_FACTOR * usual)
        if not is_burst and not (share > usual and self._first_kl_is_large(chart, share)):
            return None
        return ClipBurst(step, step, step, share, usual, 1)

    def _first_kl_is_large(self, chart: Chart, clipped: float) -> bool:
        """Whether KL and clip fraction of the first batch are too high for any run; see KLD001."""
        needed = {_UNSIGNED: self.early_kl_factor * self.min_clip, _SIGNED: self.signed_clip}
        first = {name: chart.series(name).head(1) for name in needed}
        least = self.early_kl_factor * self.min_old_kl
        return any(
            clipped >= needed[name] and values[0] >= least
            for name, values in first.items()
            if values
        )

    def _ruined_from(self, burst: ClipBurst, outcome: Series) -> float | None:
        """The outcome before a burst, if it is lost within a few readings and still is."""
        earlier = [value for step, value in outcome if step < burst.first_step][-RECENT:]
        is_first = not earlier and burst.first_step <= outcome.first_step
        if is_first:
            earlier = outcome.head(1)  # sampled before the first update
        later = [value for step, value in outcome if step > burst.last_step][: self.latest]
        if not earlier or len(later) < _FEWEST_AFTER:
            return None
        is_single = is_first or burst.readings == 1
        share = self.ruined_share if is_single else self.lost_share
        before = statistics.median(earlier)
        best = outcome.highest.level if outcome.highest else before
        if not before or (best > 0 and before < self.ruined_share * best):
            return None  # little was left to lose
        left = before - share * abs(before)
        is_lost = statistics.fmean(later) <= left and outcome.level(self.latest) <= left
        return before if is_lost else None

    def _sighting_of_burst(
        self, chart: Chart, name: str, burst: ClipBurst, before: float
    ) -> Sighting:
        first, last = burst.first_step, burst.last_step
        when = f"at step {first}" if first == last else f"at steps {first} to {last}"
        outcome = outcome_metric(chart) or ""
        level = chart.series(outcome).level(RECENT)
        text = (
            f"Updates {when} clipped up to {burst.peak:.0%} of tokens, and "
            f"{outcome_noun(chart)} fell from {before:.3g} to {level:.3g}."
        )
        peak = Evidence(name, burst.peak_step, burst.peak, burst.usual)
        evidence = (peak, *cite_all(chart, _RATE, outcome, starts={outcome: before}))
        return Sighting("warning", text, evidence, _OF_BURST, find_onset=lambda: first)

    def _by_rate_jump(self, chart: Chart) -> Sighting | None:
        """A schedule that multiplied the rate from one step to the next before the outcome fell."""
        if not chart.is_fresh(_RATE):
            return None
        rate = chart.series(_RATE)
        # A rate that jumped and keeps half of its new value is far above its lowest one.
        if rate.last < self.rate_jump / 2 * rate.window_min():
            return None
        if outcome_lost(chart) < self.lost_share:
            return self._entropy_lost_since_jump(chart, rate)
        for (_, before), (step, after) in reversed(list(itertools.pairwise(rate))):
            has_jumped = before > 0 and after >= self.rate_jump * before
            if has_jumped and rate.last >= after / 2 and self._lost_since(chart, step):
                text = f"The learning rate rose from {before:.2g} to {after:.2g} at step {step}."
                evidence = cite_all(chart, _RATE, outcome_metric(chart))
                return Sighting("warning", text, evidence, find_onset=partial(int, step))
        return None

    def _entropy_lost_since_jump(self, chart: Chart, rate: Series) -> Sighting | None:
        """Such a rate that took most of the entropy, in a run whose outcome is back."""
        name = current_metric(chart, ENTROPY_METRICS)
        entropy = chart.series(name)
        if not len(entropy) or not outcome_has_risen(chart):
            return None
        for (_, before), (step, after) in itertools.pairwise(rate):
            if not (before > 0 and after >= self.rate_jump * before):
                continue
            then = level_at(entropy, step - 1)
            if not then:
                continue
            soon = [value for at, value in entropy if at > step][:RECENT]
            if len(soon) == RECENT and statistics.median(soon) <= self.entropy_left * then:
                text = (
                    f"The learning rate rose from {before:.2g} to {after:.2g} at step {step}, and "
                    f"entropy fell from {then:.2g} to {statistics.median(soon):.2g}."
                )
                evidence = cite_all(chart, _RATE, name, outcome_metric(chart))
                return Sighting("info", text, evidence, find_onset=partial(int, step))
        return None

    def _lost_since(self, chart: Chart, step: int) -> bool:
        """Whether the outcome is far below its level before a step."""
        outcome = chart.series(outcome_metric(chart) or "")
        before = level_at(outcome, step - 1)
        return before is not None and outcome.level(self.latest) <= before - self.lost_share * abs(
            before
        )

    def _by_rate(self, chart: Chart) -> Sighting | None:
        """A rate far above any published one, in a run that lost its reward or never had a rise."""
        if not chart.is_fresh(_RATE):
            return None
        rate = chart.series(_RATE)
        highest = max(rate.tail(RECENT))
        if highest < self.max_rate:
            return None
        name = outcome_metric(chart)
        if name is None or len(chart.series(name)) < 2 * RECENT:
            return None
        if has_improved(chart) is not False or self._still_earns(chart.series(name)):
            return None
        if not self._did_harm(chart, chart.series(name)):
            return None
        rise = f"the {outcome_noun(chart)} has not risen beyond noise"
        text = f"The learning rate is {highest:.2g}, and {rise}."
        onset = partial(first_step_where, rate, lambda value: value >= self.max_rate)
        return Sighting("warning", text, cite_all(chart, _RATE, name), find_onset=onset)

    def _still_earns(self, outcome: Series) -> bool:
        """Whether an outcome in [0, 1] is so high that no update can have ruined the policy."""
        return outcome.window_max() <= 1 and outcome.mean(2 * RECENT) >= self.unharmed

    def _did_harm(self, chart: Chart, outcome: Series) -> bool:
        """Whether the policy is worse than it was, good for nothing, or long without a rise.

        A rate that changes weights by a tenth ruins a policy within a few steps. One that is merely
        slow to show a rise in twenty noisy readings is not ruined.
        """
        mean = outcome.mean(2 * RECENT)
        earns_nothing = outcome.window_max() <= 1 and mean < self.next_to_nothing
        is_lost = outcome_lost(chart) >= self.lost_share
        return earns_nothing or is_lost or outcome.readings >= self.long_run

    def _by_steps(self, chart: Chart, name: str) -> Sighting | None:
        kl = chart.series(name)
        floor = self.min_reference_kl if name.startswith("kl/reference") else self.min_old_kl
        if kl.last < floor / 4 or len(kl) < self.min_readings:
            return None
        level = kl.level(self.latest)
        has_jumped = level >= floor and self._has_jumped(kl, level, self.early_kl_factor * floor)
        if not has_jumped and not self._is_fast_and_stalled(chart, name):
            return None
        clipped = self._clipped(chart)
        # A signed mean of that size without clips comes from a few tokens; see KLD001.
        needed = self.signed_clip if name == _SIGNED else self.min_clip
        if has_jumped and (clipped < needed or not self._clips_jumped(chart, clipped)):
            return None
        if chart.is_fresh(_OFF) and chart.series(_OFF).level(RECENT) > self.min_clip:
            return None  # MIS002 reports the cause
        lost = outcome_lost(chart)
        if has_jumped and outcome_has_risen(chart) is not False and lost < self.lost_share:
            return None
        rate = chart.series(_RATE)
        at = f" at a learning rate of {rate.last:.2g}" if chart.is_fresh(_RATE) else ""
        steps = in_steps(kl, self.latest)
        clips = f"{clipped:.1%} of tokens are clipped {steps}"
        moved = f"KL is {level:.2g} nats per token and {clips}"
        text = f"{moved}{at}."
        names = (name, *_SIDES, _ANY, _RATE, outcome_metric(chart))
        updates = chart.knobs.get("updates_per_batch")
        is_ordinary = not chart.is_fresh(_RATE) or rate.last <= self.ordinary_rate
        if isinstance(updates, int | float) and updates >= self.many_updates and is_ordinary:
            text = f"{moved}, with {updates:g} updates per batch."
            return Sighting("warning", text, cite_all(chart, *names), _OF_MANY_UPDATES)
        return Sighting("warning", text, cite_all(chart, *names))

    def _is_fast_and_stalled(self, chart: Chart, kl: str) -> bool:
        """Whether a run with large steps from the start has stalled."""
        if kl != _UNSIGNED or has_improved(chart) or not has_stalled(chart):
            return False
        clipped = sum(chart.series(side).level(WINDOW) for side in self._sides(chart))
        return chart.series(kl).level(WINDOW) >= self.min_stalled_kl and (
            clipped >= self.min_clip / 2
        )

    def _sides(self, chart: Chart) -> list[str]:
        sides = [name for name in _SIDES if chart.is_fresh(name)]
        return sides or [name for name in (_ANY,) if chart.is_fresh(name)]

    def _clipped(self, chart: Chart) -> float:
        return sum(chart.series(name).level(self.latest) for name in self._sides(chart))

    def _has_jumped(self, series: Series, level: float, certain: float) -> bool:
        """Whether a metric is far above its lowest level, or too high for any run."""
        lows = [min(series.head(RECENT))]
        if series.lowest is not None:
            lows.append(series.lowest.level)
        return level >= certain or level >= self.growth_factor * max(min(lows), 0.0)

    def _clips_jumped(self, chart: Chart, clipped: float) -> bool:
        lows = sum(min(chart.series(name).head(RECENT)) for name in self._sides(chart))
        return clipped >= self.early_kl_factor * self.min_clip or (
            clipped >= self.growth_factor * lows
        )

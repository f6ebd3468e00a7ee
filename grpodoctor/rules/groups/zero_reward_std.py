"""GRP004."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import UNDECIDED, Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.distillation import DISTILLED, is_distilled
from grpodoctor.rules.shared.groups.alike_groups import (
    ALIKE_STD,
    BATCH_STD,
    GROUP_STD,
    all_correct_share,
    has_alike_groups,
    has_alike_stds,
)
from grpodoctor.rules.shared.groups.zero_variance import zero_variance_cause
from grpodoctor.rules.shared.health.run_health import (
    FLAT_BATCHES,
    RECENT,
    ZERO_VARIANCE_METRICS,
    first_step_where,
    has_critic,
    has_improved,
    is_near_ceiling,
    is_stuck,
    outcome_metric,
    typical_share,
    zero_variance_metric,
)
from grpodoctor.rules.shared.health.whole_run import never_moved
from grpodoctor.rules.shared.outcome.flat_outcome import outcome_rose
from grpodoctor.rules.shared.shapes.averaged_batches import batches_per_reading, equal_batches
from grpodoctor.rules.shared.shapes.windows import in_steps, in_typical_steps
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.inferred_groups import INFERRED_ZERO_VARIANCE
from grpodoctor.runs.series import WINDOW, Series
from grpodoctor.vocabulary.conditions import Condition

_ZERO_VARIANCE = "groups/zero_variance_rate"
_ALL_CORRECT = "groups/all_correct_rate"
_ALL_INCORRECT = "groups/all_incorrect_rate"
_CANCELLED = "groups/cancelled_rate"
_MOSTLY = 0.5
"""Share of truncated responses above which equal lengths are the limit."""
_FOR_ALIKE_GROUPS = ("larger-groups", "raise-temperature", "recheck-reward")
"""Remedies where rewards differ between groups but never within one."""


class ZeroRewardStd(Rule):
    """Many groups have equal rewards, and correctness does not explain why.

    What it sees:
        Zero-variance groups beyond those that are all-correct, all-incorrect or whose components
        cancel: the reward is the same for responses of different quality. In a log that does not
        split such groups: more of them than accuracy or a binary reward can explain. Also nearly
        all groups, if many of them are all-correct and many all-incorrect: the responses to one
        prompt are copies or nearly so. Where the log does not split groups, accuracy, or a reward
        that spreads as 0 and 1 do, gives both shares. A log of spreads shows the same by rewards
        that differ among all responses and hardly within a group.

        The finding is `info` where the reward has an unknown scale and has not risen, since the log
        then does not separate success from failure. It is a warning once most batches have one and
        the same reward, without a rise in twenty readings: whatever the scale, nothing is learned.
        So is a reward that differs from batch to batch if hardly any batch has a group that varies.
        A reward that is the same negative number for all responses is a failure on any scale: the
        policy has found the cheapest way to end an episode. Where groups are counted by
        correctness, a rising outcome does not excuse equal rewards of right and wrong responses.

    Why it matters:
        The reward function is the cause, and no prompt mix or sampling method will help: a reward
        that is always given, a judge that always answers the same, a format reward that every
        response receives, or responses that are all truncated before the graded part. A rising or
        high reward curve hides the problem.

    Evidence it needs:
        `groups/zero_variance_rate`; or readings that imply it, such as `reward/max` and
        `reward/min`, `advantage/max` and `advantage/min`, or `groups/reward_std`. Optional:
        `groups/all_correct_rate`, `groups/all_incorrect_rate` and `groups/cancelled_rate`.

    Remedies:
        Score a correct, an incorrect and an empty response by hand. If all responses are truncated
        (LEN002), raise the length limit first. If rewards differ between groups but never within
        one, check that each group has several responses, sampled at a temperature above 0.

    When it is wrong:
        A graded reward can give a whole group the same middle grade by chance, but not half of all
        groups. If correctness is not logged, a reward that has risen counts as success, whatever it
        really rewards.

    References:
        DAPO, arXiv 2503.14476, section 3.2, for what such groups cost.
    """

    code: ClassVar[str] = "GRP004"
    name: ClassVar[str] = "zero-reward-std"
    condition: ClassVar[Condition] = "equal-rewards"
    judged_by_outcome: ClassVar[bool] = True
    former_names: ClassVar[tuple[str, ...]] = ("constant-reward-within-groups",)
    summary: ClassVar[str] = "Many groups have equal rewards, unexplained by correctness."
    inputs: ClassVar[tuple[Need, ...]] = (ZERO_VARIANCE_METRICS,)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward", "longer-limit")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)
    clearance: ClassVar[int] = 2 * RECENT
    judges_levels: ClassVar[bool] = True

    min_share: float = 0.5
    """Share of unexplained groups; healthy runs have next to none."""
    all_share: float = 0.98
    """Share of zero-variance groups at which no signal is left except by accident."""
    patience: int = 20
    """Readings without any signal that are critical, or without a rise that are a warning."""
    starving_share: float = 0.6
    """Share of groups at which an outcome that does not rise is a failure on any scale. Healthy
    runs reach it late, after their rise; see GRP001."""
    min_flat_batches: float = FLAT_BATCHES
    """Share of batches without any variance, where groups are not counted."""
    noise_allowance: float = 0.1
    """Added to the share that a binary reward can explain, for the noise of both."""
    min_readings: int = 5
    """Minimum readings for a level."""

    def examine(self, chart: Chart) -> RuleResult:
        """Take the recent share of unexplained zero-variance groups."""
        if is_distilled(chart):
            return DISTILLED
        name = zero_variance_metric(chart) or _ZERO_VARIANCE
        is_inferred, series = name == INFERRED_ZERO_VARIANCE, chart.series(name)
        if is_inferred and has_critic(chart):
            return None
        quiet = UNDECIDED if is_inferred else None
        if is_inferred and has_alike_stds(chart):
            return self._of_alike_stds(chart)
        if series.last < self.min_share or len(series) < self.min_readings:
            return quiet
        alike = self._of_alike_responses(chart, series)
        if alike is not None:
            return alike
        zero_variance = self._share(series, is_inferred=is_inferred)
        if not zero_variance >= (self.starving_share if is_inferred else self.min_share):
            return quiet
        unexplained = self._unexplained(chart, zero_variance)
        is_mixed = is_inferred and not zero_variance >= self.min_flat_batches
        if is_mixed or not unexplained >= self.min_share:
            return self._of_unknown_cause(chart, zero_variance) or (quiet if is_mixed else None)
        is_critical = is_inferred or zero_variance >= self.all_share
        is_critical = is_critical and len(series) >= self.patience
        text = (
            f"{unexplained:.0%} of groups have equal rewards {in_typical_steps(series, RECENT)}, "
            "and are neither all correct nor all incorrect."
        )
        remedies = None
        metrics: tuple[str | None, ...] = (
            name,
            _ALL_CORRECT,
            _ALL_INCORRECT,
            _CANCELLED,
            outcome_metric(chart),
        )
        if is_inferred:
            text, remedies = self._of_batches(chart, zero_variance)
            metrics = (*metrics, "reward/max", "reward/min")
        severity: Severity = "critical" if is_critical else "warning"
        return Sighting(
            severity,
            text,
            cite_all(chart, *metrics),
            remedies,
            self._onset(chart),
            weighs_outcome=_is_split(chart),
        )

    def _of_alike_responses(self, chart: Chart, equal: Series) -> Sighting | None:
        """A finding on groups that agree with themselves, whether they are right or wrong.

        Independent responses to prompts with a chance between .1 and .9 disagree in most groups of
        four and more, so that some mixed groups exist wherever both kinds of equal ones do.

        Args:
            chart: the run so far.
            equal: the share of groups with equal rewards. A log that counts both kinds of equal
                groups counts all of them, so an inferred share is no mere bound then.
        """
        zero_variance = typical_share(equal, RECENT)
        if has_critic(chart) or not has_alike_groups(chart, zero_variance):
            return None
        right = all_correct_share(chart) or 0.0
        text = (
            f"{zero_variance:.0%} of groups have equal rewards {in_typical_steps(equal, RECENT)}, "
            f"{right:.0%} all-correct and the others all-incorrect: "
            "responses to one prompt are alike."
        )
        metrics = (zero_variance_metric(chart), _ALL_CORRECT, _ALL_INCORRECT, outcome_metric(chart))
        evidence = cite_all(chart, *metrics)
        onset = partial(first_step_where, equal, lambda value: value >= self.min_share)
        return Sighting("warning", text, evidence, _FOR_ALIKE_GROUPS, onset)

    def _of_alike_stds(self, chart: Chart) -> Sighting:
        """The same where the log has only the spread within groups and that of the whole batch."""
        spreads, batch = chart.series(GROUP_STD), chart.series(BATCH_STD).level(RECENT)
        text = (
            f"Rewards spread by {spreads.mean(RECENT):.2g} within groups and by {batch:.2g} among "
            "all responses: responses to one prompt are alike."
        )
        evidence = cite_all(chart, GROUP_STD, BATCH_STD, outcome_metric(chart))
        onset = partial(first_step_where, spreads, lambda value: value <= ALIKE_STD * batch)
        return Sighting("warning", text, evidence, _FOR_ALIKE_GROUPS, onset)

    def _of_batches(self, chart: Chart, share: float) -> tuple[str, tuple[str, ...] | None]:
        """The summary, and the remedies, where the extremes of a batch show that no group varies.

        Rewards that differ within the batch rule out a constant reward. Their advantages are all 0
        if each group has one response, or if sampling gives equal responses.
        """
        inferred = chart.series(INFERRED_ZERO_VARIANCE)
        batches = f"{share:.0%} of batches {in_steps(inferred, 2 * RECENT)}"
        mean = chart.series("reward/mean").level(RECENT)
        highest, lowest = chart.value("reward/max"), chart.value("reward/min")
        if highest is None or lowest is None or highest == lowest:
            return (f"Every response earns the same reward in {batches} (mean {mean:.3g})."), None
        return (
            f"All advantages are 0 in {batches}, although rewards range from "
            f"{lowest:.3g} to {highest:.3g}."
        ), _FOR_ALIKE_GROUPS

    def _share(self, series: Series, *, is_inferred: bool) -> float:
        """The typical share of groups, or the share of batches in which no group varies."""
        if not is_inferred:
            return typical_share(series, RECENT)
        shares = series.tail(2 * RECENT)
        return sum(share >= self.all_share for share in shares) / len(shares)

    def _of_unknown_cause(self, chart: Chart, zero_variance: float) -> Sighting | None:
        """A finding where the log cannot separate success from an uninformative reward.

        An `info`, or a warning if most groups have equal rewards and the reward never rose.
        """
        reward = chart.series("reward/mean")
        causes = (_ALL_CORRECT, _ALL_INCORRECT, _CANCELLED, "accuracy/train")
        is_known = any(chart.is_fresh(name) for name in causes)
        if is_known or not len(reward) or has_improved(chart):
            return None
        is_starving = zero_variance >= self.starving_share and self._never_rose(chart)
        is_bounded = reward.is_within(0, 1)
        if is_bounded and not is_starving:
            return None
        length = _repeated_length(chart)
        is_inferred = zero_variance_metric(chart) == INFERRED_ZERO_VARIANCE
        equal = chart.series(zero_variance_metric(chart) or _ZERO_VARIANCE)
        if is_inferred:
            steps, batches = in_steps(equal, 2 * RECENT), batches_per_reading(chart, equal)
            of_what = "batches" if batches == 1 else f"{batches}-batch readings"
            parts = [f"No group varies in {zero_variance:.0%} of {of_what} {steps}"]
        else:
            steps = in_typical_steps(equal, RECENT)
            parts = [f"{zero_variance:.0%} of groups have equal rewards {steps}"]
        if length is None:
            parts.append("correctness is not logged, and the reward has not risen.")
        else:
            parts += [
                f"most repeat one length ({length:.4g} tokens)",
                "the reward has not risen.",
            ]
        text = "; ".join(parts)
        remedies = (
            "recheck-reward",
            "raise-temperature" if length is not None else "dynamic-sampling",
        )
        evidence = cite_all(
            chart,
            zero_variance_metric(chart),
            "reward/mean",
            "length/mean" if length is not None else None,
        )
        severity: Severity = "warning" if is_starving else "info"
        onset = self._onset(chart)
        if self._is_without_signal(chart):
            onset = partial(self._first_without_signal, chart, onset())
        return Sighting(severity, text, evidence, remedies, onset)

    def _never_rose(self, chart: Chart) -> bool:
        """Whether the reward is neither risen nor full, and no prompt mix explains equal groups.

        Either most readings are one and the same reward, or hardly any batch has a group that
        varies. Otherwise, the prompts may differ in difficulty.
        """
        reward = chart.series("reward/mean")
        if len(reward) < self.patience:
            return False
        if _repeated(reward.tail(WINDOW)) is None and not self._is_without_signal(chart):
            return False
        is_solved = is_near_ceiling(reward) or zero_variance_cause(chart) == "all-correct"
        return not is_solved and not outcome_rose(chart)

    def _is_without_signal(self, chart: Chart) -> bool:
        """Whether no group varies in most batches, early and late among the latest readings."""
        equal = chart.series(INFERRED_ZERO_VARIANCE)
        if zero_variance_metric(chart) != INFERRED_ZERO_VARIANCE or len(equal) < self.patience:
            return False
        batches = batches_per_reading(chart, equal)
        shares = equal.tail(2 * RECENT)
        halves = (shares[:RECENT], shares[RECENT:])
        return all(
            equal_batches(half, batches, self.all_share) >= self.min_flat_batches for half in halves
        )

    def _first_without_signal(self, chart: Chart, latest: int) -> int:
        """The step of the first ten readings since which no group varies in most batches."""
        equal = chart.series(INFERRED_ZERO_VARIANCE)
        batches, shares = batches_per_reading(chart, equal), equal.tail(WINDOW)
        first = len(shares) - 2 * RECENT
        while (
            first >= RECENT
            and equal_batches(shares[first - RECENT : first], batches, self.all_share)
            >= self.min_flat_batches
        ):
            first -= RECENT
        return min(latest, equal.steps(WINDOW)[first])

    def _onset(self, chart: Chart) -> Callable[[], int]:
        series = chart.series(zero_variance_metric(chart) or _ZERO_VARIANCE)
        return partial(first_step_where, series, lambda value: value >= self.min_share)

    def _unexplained(self, chart: Chart, zero_variance: float) -> float:
        parts = [
            name for name in (_ALL_CORRECT, _ALL_INCORRECT, _CANCELLED) if chart.is_fresh(name)
        ]
        if not _is_split(chart) and (
            zero_variance_cause(chart) or self._may_be_explained(chart, zero_variance)
        ):
            return 0.0
        return zero_variance - sum(typical_share(chart.series(name), RECENT) for name in parts)

    def _may_be_explained(self, chart: Chart, zero_variance: float) -> bool:
        """Whether all-correct or all-incorrect groups can explain a share without accuracy."""
        reward = chart.series("reward/mean")
        if len(chart.series("accuracy/train")) or not len(reward) or never_moved(reward):
            return False
        if not reward.is_within(0, 1):  # unknown scale
            improved = has_improved(chart) is True
            is_negative = len(reward) >= RECENT and max(reward.tail(2 * RECENT)) < 0
            if zero_variance >= self.min_flat_batches and is_negative:
                return improved and not is_stuck(chart)
            return zero_variance < self.all_share or improved
        level = reward.level(RECENT)
        return zero_variance <= max(level, 1 - level) + self.noise_allowance


def _is_split(chart: Chart) -> bool:
    """Whether correctness is logged by group: equal rewards of right and wrong responses then show.

    What little the other groups teach does not make such a reward right.
    """
    return chart.is_fresh(_ALL_CORRECT) and chart.is_fresh(_ALL_INCORRECT)


def _repeated(values: list[float]) -> float | None:
    """The value that more than half of some readings share exactly; None without one."""
    value, count = Counter(values).most_common(1)[0] if values else (math.nan, 0)
    return value if 2 * count > len(values) else None


def _repeated_length(chart: Chart) -> float | None:
    """The mean length that most recent batches share exactly; None without one.

    Means of many responses repeat a value only if all responses are the same, or truncated.
    """
    if chart.series("length/truncated_rate").level(RECENT) > _MOSTLY:
        return None
    return _repeated(chart.series("length/mean").tail(2 * RECENT))

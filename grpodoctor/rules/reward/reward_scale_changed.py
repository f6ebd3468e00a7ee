"""REW016."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import ClassVar

from grpodoctor.rules.base import (
    NOT_LOGGED,
    Need,
    Rule,
    RuleResult,
    Sighting,
    cite,
    cite_all,
)
from grpodoctor.rules.shared.groups.whole_group_copies import copies_whole_groups
from grpodoctor.rules.shared.health.heldout import heldout_level_kept_since, heldout_rise_since
from grpodoctor.rules.shared.health.reward_components import (
    MEAN,
    STD,
    component_means_among,
    component_name,
)
from grpodoctor.rules.shared.health.run_health import RECENT, current_metric
from grpodoctor.rules.shared.shapes.task_stages import stage_changes
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_SPREADS = ("reward/std", "groups/reward_std")
_MEANS = ("reward/mean", "reward/kept_mean")
_HIGHEST = "reward/max"
_BOUNDS = {_HIGHEST: "highest reward", "reward/min": "lowest reward"}
_OUTCOMES = ("accuracy/train", "pass_at_k/")
_UNDIVIDED = frozenset({"centred", "leave_one_out", "none", "gae"})

_STEADY = 0.75
"""Part of the failures of ten readings that the last three of them still have: a policy that
learned fast may solve the rest."""
_SURE_FAILURES = 12.0
"""Expected number of failures that chance does not hide: none of so many has a probability of
6e-6."""
_NEAREST = 3
"""Readings on each side of a step that show whether it is one."""

_CORRELATED = 0.8
"""Correlation of ten readings that chance reaches with a probability of .003, one-sided."""
_EVALUATED = 25
"""Readings within which two held-out evaluations must follow a step."""
_BELOW = "while evaluations stay"

_Windows = tuple[list[float], list[float]]
"""The readings before a step and since it."""


class RewardScaleChanged(Rule):
    """From one step to the next, rewards are multiplied, constant or without a part, and stay so.

    What it sees:
        One of these, from one reading to the next, with the new level kept:

        - a spread of the rewards that rises by a factor of ten or more;
        - a spread and a mean that change by the same factor, three or more in either direction;
        - a highest or a lowest reward that had one value in every batch and has another now, three
          times or a third of it;
        - a mean reward that jumps while accuracy or pass@k keeps its level or moves in the other
          direction: most of the change lies between the three readings before the step and the
          three since it, and the reward's usual change per unit of accuracy explains less than
          half of it;
        - a highest reward of every batch that falls together with the mean while the held-out
          evaluation keeps rising: a part of the reward is not paid any more;
        - a mean reward, or that of a component, which was positive and is negative from one step to
          the next, while held-out evaluations stay, or by about the same amount;
        - a mean reward that was at most 1 in every batch and is above 1 now, three times as high;
        - a mean reward that varied from batch to batch and is one higher value in every batch now:
          a cache, or a verifier that accepts everything. At 1 a smaller jump is enough, if at least
          half of the earlier failures would show since then.

        Learning changes a reward within its bounds and over many steps, and a failure of the
        verifier changes the mean more than the spread.

    Why it matters:
        The reward function or its weights were replaced in the middle of the run: after a resume, a
        deployment of the judge, a change of units. Rewards before and after cannot be compared, so
        the curve's rise is none. Where advantages are not divided by the spread, updates grow by
        the same factor.

    Evidence it needs:
        `reward/mean` or `reward/kept_mean`. Optional: `reward/std`, `groups/reward_std`, the spread
        of a component, `reward/max`, `reward/min`, `reward/heldout`, `accuracy/heldout`,
        `accuracy/train`, `pass_at_k`, and the setting `advantage`, which tells whether the updates
        grew as well.

    Remedies:
        Score one batch from before the step with the present reward function, and compare. Scale
        the rewards back, or start a new run.

    When it is wrong:
        A curriculum whose tasks pay on different scales, if its stage is not logged. Updates are
        the same as before if advantages are divided by the spread of their group, but the readings
        before and after the step cannot be compared all the same: a rise from one to the other is
        not progress.

    References:
        Dr. GRPO, arXiv 2503.20783, on the division by the standard deviation.
    """

    code: ClassVar[str] = "REW016"
    name: ClassVar[str] = "reward-scale-changed"
    condition: ClassVar[Condition] = "wrong-reward"
    explains: ClassVar[tuple[Condition, ...]] = (
        "gradient-spike",
        "oversized-updates",
        "reward-loss",
        "solved",
        "held-out-loss",
        "environment-change",
        "length-growth",
        "length-loss",
        "truncation",
    )
    summary: ClassVar[str] = (
        "Rewards changed from one step to the next as no learning changes them."
    )
    inputs: ClassVar[tuple[Need, ...]] = (_MEANS,)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.20783",)
    persistence: ClassVar[int] = 1
    """The rule itself compares several readings before and after the step."""
    clearance: ClassVar[int] = 10**6
    """The readings before the step leave the window, and the rewards stay incomparable."""

    factor: float = 10.0
    """Factor between the highest spread before the step and the lowest after it. Rewards of 0 and 1
    spread by .5 at most, and one success among 64 responses by .12."""
    common_factor: float = 3.0
    """Factor by which spread and mean, or the highest reward of every batch, change together."""
    agreement: float = 1.4
    """Ratio of the two factors up to which they agree. A verifier that rejects most correct
    responses divides the mean by far more than the spread."""
    noises: float = 4.0
    """Jump of the mean, in standard deviations of the readings before it, with a level accuracy."""
    min_jump: float = 0.25
    """The same jump as a share of the mean before it."""
    abrupt_share: float = 0.6
    """Share of that jump between the medians of the three readings on each side of the step. Along
    a slope it is .4, in a jump 1."""
    after: int = 5
    """Readings since the step."""
    long_after: int = 20
    """The same for rare failures that vanish, where five readings are too few to be sure."""
    few_failures: float = 0.8
    """Mean before the step from which failures are rare."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the latest readings with those before them."""
        spreads, bounds, outcomes = _logged_among(chart.fresh)
        found = [self._jump(chart, name) for name in spreads]
        mean = current_metric(chart, _MEANS)
        means = self._windows(chart, mean)
        if means is not None and not _are_apart(*means):
            means = None
        if means is not None:
            found += [self._scaled(chart, name, means) for name in spreads]
        found += [self._stretched(chart, name) for name in bounds]
        if means is not None:
            found += [self._alone(chart, name, means) for name in outcomes]
            found += [
                self._leap(chart, means),
                self._unpaid(chart),
                self._frozen(chart, mean, means),
            ]
        is_logged = spreads or bounds or outcomes
        found.append(self._flipped(chart))
        last = chart.series(mean).last  # hardly any mean needs a look at one of these two
        if last < 0:
            found.append(self._negated(chart, mean))
        elif last == 1:
            found.append(self._vanished(chart, mean))
        changed = next(filter(None, found), None)
        if changed is not None:
            return None if self._comes_with_stage(chart, changed) else changed
        return None if is_logged else NOT_LOGGED

    def _comes_with_stage(self, chart: Chart, sighting: Sighting) -> bool:
        """Whether the tasks of a curriculum changed at this step, which may pay otherwise."""
        return sighting.find_onset is not None and sighting.find_onset() in stage_changes(chart)

    def _windows(self, chart: Chart, name: str) -> _Windows | None:
        """The readings before and since the step; None with too few of them."""
        values = chart.series(name).tail(RECENT + self.after)
        if len(values) < RECENT + self.after or not math.isfinite(sum(values)):
            return None
        return values[:RECENT], values[RECENT:]

    def _scaled(self, chart: Chart, name: str, means: _Windows) -> Sighting | None:
        """A mean and a spread that change by the same factor."""
        spreads = self._windows(chart, name)
        if name not in _SPREADS:  # a part of the reward, which may be all of it
            means = self._windows(chart, f"{name.removesuffix(STD)}{MEAN}") or means
        if spreads is None:
            return None
        spread, mean = _factor(*spreads), _factor(*means)
        if spread is None or mean is None or max(spread, 1 / spread) < self.common_factor:
            return None
        if not 1 / self.agreement <= spread / mean <= self.agreement:
            return None
        return self._sighting(chart, statistics.median(means[0]), statistics.median(means[1]), name)

    def _stretched(self, chart: Chart, name: str) -> Sighting | None:
        """A bound of the rewards that was the same in every batch, and is another one now."""
        windows = self._windows(chart, name)
        if windows is None or not _are_apart(*windows):
            return None
        if any(len(set(values)) > 1 for values in windows):
            return None
        factor = _factor(*windows)
        if factor is None or max(factor, 1 / factor) < self.common_factor:
            return None
        return self._sighting(chart, windows[0][0], windows[1][0], name, _BOUNDS[name])

    def _leap(self, chart: Chart, means: _Windows) -> Sighting | None:
        """A mean that leaves the range of rewards of 0 and 1 in one step."""
        if not 0 < max(means[0]) <= 1 < min(means[1]):
            return None
        if min(means[1]) < self.common_factor * max(means[0]):
            return None
        before, after = (statistics.median(values) for values in means)
        return self._sighting(chart, before, after, current_metric(chart, _MEANS))

    def _negated(self, chart: Chart, name: str) -> Sighting | None:
        """A mean below zero that fell there at once, while held-out evaluations stay.

        A collapse also takes rewards below zero, and lowers the evaluations. It takes a while until
        two of them are known.
        """
        series = chart.series(name)
        for after in range(self.after, min(_EVALUATED, len(series) - RECENT) + 1):
            values = series.tail(RECENT + after)
            step = series.steps(after)[0]
            if not _changed_sign(values[:RECENT], values[RECENT:]):
                continue
            if heldout_level_kept_since(chart, step) is None:
                continue
            before, now = (statistics.median(part) for part in (values[:RECENT], values[RECENT:]))
            return self._sighting(chart, before, now, name, reason=_BELOW, step=step)
        return None

    def _flipped(self, chart: Chart) -> Sighting | None:
        """A component whose mean changes its sign at once and keeps its size."""
        for part in component_means_among(chart.fresh):
            if not chart.series(part).last < 0:
                continue  # the usual case
            windows = self._windows(chart, part)
            if windows is None or not _changed_sign(*windows):
                continue
            before, after = (statistics.median(values) for values in windows)
            if 1 / self.agreement <= abs(after / before) <= self.agreement:
                what = f"component {component_name(part)}"
                return self._sighting(chart, before, after, part, what, "as if its sign changed")
        return None

    def _unpaid(self, chart: Chart) -> Sighting | None:
        """A part of the reward that no response earns any more, while the policy gets better."""
        windows = self._windows(chart, _HIGHEST)
        if windows is None or any(len(set(values)) > 1 for values in windows):
            return None
        (before, *_), (after, *_) = windows
        step = chart.series(_HIGHEST).steps(self.after)[0]
        if not after < before or heldout_rise_since(chart, step) is None:
            return None
        return self._sighting(chart, before, after, _HIGHEST, _BOUNDS[_HIGHEST])

    def _alone(self, chart: Chart, name: str, means: _Windows) -> Sighting | None:
        """A mean reward that jumps while another measure of the same responses does not follow.

        One that moves in the other direction explains the jump even less than one that stays.
        """
        outcomes = self._windows(chart, name)
        if outcomes is None:
            return None
        before, after = (statistics.median(values) for values in means)
        scatter = statistics.stdev(means[0])
        if abs(after - before) < max(self.noises * scatter, self.min_jump * abs(before)):
            return None
        sudden = statistics.median(means[1][:_NEAREST]) - statistics.median(means[0][-_NEAREST:])
        if sudden / (after - before) < self.abrupt_share:
            return None
        moved = statistics.fmean(outcomes[1]) - statistics.fmean(outcomes[0])
        followed = moved if after > before else -moved
        noise = statistics.stdev(outcomes[0]) * math.sqrt(1 / RECENT + 1 / self.after)
        usual = abs(statistics.fmean(outcomes[0]))
        if not usual > 0 or followed > max(2 * noise, 0.1 * usual):
            return None
        if _reward_for(outcomes[0], means[0], moved) >= abs(after - before) / 2:
            return None
        return self._sighting(chart, before, after, name)

    def _frozen(self, chart: Chart, name: str, means: _Windows) -> Sighting | None:
        """A mean that jumps to one value, which no update gives to all responses at once."""
        earlier, later = means
        value, before = later[0], statistics.fmean(earlier)
        if copies_whole_groups(chart):
            return None  # the samples changed: DAT006
        if len(set(later)) > 1 or value < before or len(set(earlier)) < RECENT / 2:
            return None
        jump = value - before
        if jump < max(self.noises * statistics.stdev(earlier), self.min_jump * abs(before)):
            return None
        if value - earlier[-1] < self.abrupt_share * jump:
            return None
        return self._sighting(chart, before, value, name, reason="for every batch since")

    def _vanished(self, chart: Chart, name: str) -> Sighting | None:
        """Failures that are gone at once, at a mean of 1, while learning makes them rarer."""
        if copies_whole_groups(chart):
            return None
        series = chart.series(name)
        for after in (self.after, self.long_after):
            values = series.tail(RECENT + after)
            if len(values) < RECENT + after or min(values[RECENT:]) < 1:
                return None
            earlier = values[:RECENT]
            is_rare = after == self.after or statistics.fmean(earlier) >= self.few_failures
            if is_rare and _failures_vanish(earlier, after):
                before, step = statistics.fmean(earlier), series.steps(after)[0]
                reason = "for every batch since"
                return self._sighting(chart, before, 1.0, name, reason=reason, step=step)
        return None

    def _sighting(
        self,
        chart: Chart,
        before: float,
        after: float,
        name: str,
        what: str = "mean reward",
        reason: str = "",
        step: int | None = None,
    ) -> Sighting:
        step = chart.series(name).steps(self.after)[0] if step is None else step
        text = f"The {what} went from {before:.3g} to {after:.3g} at step {step}"
        reason = reason or _reason(name)
        evidence = cite_all(chart, *dict.fromkeys((current_metric(chart, _MEANS), name)))
        text = f"{text}, {reason}: the reward function changed."
        return Sighting("warning", text, evidence, find_onset=partial(int, step))

    def _jump(self, chart: Chart, name: str) -> Sighting | None:
        series = chart.series(name)
        values = series.tail(RECENT + self.after)
        if len(values) < RECENT + self.after or not values[-1] >= self.factor * values[0] > 0:
            return None
        highest, lowest = max(values[:RECENT]), min(values[RECENT:])
        if not lowest >= self.factor * highest > 0 or not math.isfinite(sum(values)):
            return None
        step = series.steps(self.after)[0]
        text = f"The spread of the rewards rose from {highest:.2g} to {lowest:.2g} at step {step}"
        if chart.knobs.get("advantage") in _UNDIVIDED:
            text = f"{text}, and the updates with it"
        evidence = (cite(chart, name, highest), *cite_all(chart, current_metric(chart, _MEANS)))
        return Sighting("warning", f"{text}.", evidence, find_onset=partial(int, step))


def _failures_vanish(earlier: Sequence[float], after: int) -> bool:
    """Whether responses that failed before a step all succeed since it, beyond what one step does.

    Learning makes failures rarer from step to step. If it halved them at once, and then stopped,
    the readings since then would have this many of them: each reading covers as many responses as
    its scatter shows, if each succeeds or fails.

    Args:
        earlier: shares of successes before the step.
        after: readings since then.
    """
    if min(earlier) < 0 or max(earlier) >= 1 or min(earlier) == max(earlier):
        return False
    usual = 1 - statistics.fmean(earlier)
    latest = 1 - statistics.fmean(earlier[-_NEAREST:])
    responses = usual * (1 - usual) / statistics.variance(earlier)
    is_level = latest >= _STEADY * usual
    return is_level and latest / 2 * responses * after >= _SURE_FAILURES


def _reason(name: str) -> str:
    """What a jump that shows in a metric means."""
    if name in _BOUNDS:
        return "as for every batch since"
    if name in _MEANS:
        return "above 1"
    return "as the spread did" if name in _SPREADS else "unlike the outcome"


def _reward_for(outcomes: Sequence[float], rewards: Sequence[float], moved: float) -> float:
    """The size of a change of the reward that belongs to a change of the outcome.

    A reward from -2 to 1 moves three times as far as the accuracy that it pays for, as the readings
    before the step show. It is 0 if the two were hardly correlated.
    """
    if min(statistics.pstdev(outcomes), statistics.pstdev(rewards)) <= 0:
        return 0.0
    if statistics.correlation(outcomes, rewards) < _CORRELATED:
        return 0.0
    return abs(statistics.linear_regression(outcomes, rewards).slope * moved)


def _factor(before: Sequence[float], after: Sequence[float]) -> float | None:
    """The ratio of two levels of one sign whose readings do not overlap; None without one."""
    if not _are_apart(before, after):
        return None
    old, new = statistics.median(before), statistics.median(after)
    return new / old if old * new > 0 else None


def _changed_sign(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether all readings were above zero before a step, and all are far below since it."""
    if not max(after) < 0 < min(before):
        return False
    scatter = statistics.stdev(before)
    fall = statistics.median(before) - statistics.median(after)
    return before[-1] - after[0] >= max(fall / 2, 4 * scatter)


def _are_apart(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether all readings since a step are above, or below, all those before; a fast test."""
    lowest, highest = min(before), max(before)
    if lowest <= after[-1] <= highest:
        return False
    return min(after) > highest or max(after) < lowest


@lru_cache(maxsize=64)
def _logged_among(
    names: frozenset[str],
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The spreads, bounds and measures of success among the metrics of a step.

    They are the same in most steps.
    """
    of_parts = (f"{name.removesuffix(MEAN)}{STD}" for name in component_means_among(names))
    spreads = tuple(name for name in (*_SPREADS, *of_parts) if name in names)
    bounds = tuple(name for name in _BOUNDS if name in names)
    return spreads, bounds, tuple(sorted(name for name in names if name.startswith(_OUTCOMES)))

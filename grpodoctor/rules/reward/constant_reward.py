"""REW004."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite, cite_all
from grpodoctor.rules.shared.distillation import DISTILLED, is_distilled
from grpodoctor.rules.shared.health.component_roles import only_form_is_earned
from grpodoctor.rules.shared.health.heldout import confirms_success
from grpodoctor.rules.shared.health.reward_components import (
    MEAN,
    MOST_NAMED,
    STD,
    component_means,
    component_name,
    list_components,
)
from grpodoctor.rules.shared.health.run_health import (
    FLAT_BATCHES,
    first_step_where,
    has_critic,
    is_near_ceiling,
    is_solved,
    zero_variance_metric,
)
from grpodoctor.rules.shared.health.whole_run import never_moved
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW, Series
from grpodoctor.vocabulary.component_names import PENALTY_NAMES
from grpodoctor.vocabulary.conditions import Condition

_REWARD = "reward/mean"
_EQUAL = "groups/zero_variance_rate"
_SPREADS = ("reward/std", "groups/reward_std")


class ConstantReward(Rule):
    """The reward has the same mean at every step, or no response ever earned one of its components.

    What it sees:
        A mean that is the same in every reading of the window, or since some step. For the total
        reward the finding is a warning, since the reward does not separate one response from
        another; it is `info` if the accuracy in training or on held-out prompts shows that the task
        is solved. A reward that settles at its highest level above zero may be solved and is left
        to GRP001 and REW006, unless groups vary while mean and spread are exactly the same in each
        batch: then the scores are those of an earlier batch. A reward that had one mean and one
        spread from the start while groups vary may also be a rank within the group, which a log
        with a single spread does not distinguish; it is `info`. For a single component at zero or
        below it is `info`: its share of the maximum reward is never earned. It is a warning if all
        earned components reward the form of the response, judged by their names: the task itself
        was then never rewarded. It is also a warning if a component that can be earned is zero in
        most readings while nearly all groups have equal rewards: the policy has settled on the
        other components.

    Why it matters:
        No response among hundreds earned a reward, or all did. A parser that expects another
        format is far more likely than a policy without a single success. Unlike all-incorrect
        groups (GRP002), this needs no group statistics.

    Evidence it needs:
        `reward/mean`. Optional: `reward/component/<name>/mean`, and
        `groups/zero_variance_rate` with `reward/std`, `groups/reward_std` or the
        spread of a component.

    Remedies:
        Run the reward function on a known correct answer in the format that the prompt asks for.

    When it is wrong:
        A rare success may not have happened yet in small batches. A component at zero may be a
        penalty that no response has incurred, which is good; the rule leaves out components whose
        name indicates a penalty. It also leaves out components above zero, which all responses
        usually earn for a good reason (a format that the policy knows from the start), so it does
        not detect a component that every response earns; REW007 does.

    References:
        open-r1 issues 293, 215 and 557 for parsers that reject right answers.
    """

    code: ClassVar[str] = "REW004"
    name: ClassVar[str] = "constant-reward"
    condition: ClassVar[Condition] = "constant-reward"
    summary: ClassVar[str] = "The reward never moved, or one of its components was never earned."
    inputs: ClassVar[tuple[Need, ...]] = (_REWARD,)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward",)
    references: ClassVar[tuple[str, ...]] = ("github.com/huggingface/open-r1/issues/293",)
    persistence: ClassVar[int] = 1
    clearance: ClassVar[int] = 1
    cadence: ClassVar[int] = 10

    min_readings: int = 20
    """Readings with the same value. With 128 responses per step, a success rate of one in a
    thousand would have shown itself with a probability of 92%."""
    max_spread: float = 1e-3
    """Distance from the level, as a share of it, that still counts as constant: one response in a
    thousand may differ."""
    max_chance: float = 1e-4
    """Probability that as many of the latest readings are at the level as are, at the share of the
    earlier ones: the rule looks at every tenth of some hundred readings."""
    max_equal: float = 0.5
    """Share of groups with equal rewards below which the responses of a batch earn differently: the
    mean of 32 binary rewards is the same in twenty batches by chance in one of 10^16 runs."""
    constant_share: float = 0.8
    """Share of the readings at the level: a public run whose policy had collapsed onto one answer
    left it in one batch of eight."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look for means that never left their first value."""
        if len(chart.series(_REWARD)) < self.min_readings:
            return None
        if is_distilled(chart):
            return DISTILLED
        if self._never_moved(chart, _REWARD):
            return self._constant_total(chart)
        if self._has_settled(chart) and not is_solved(chart):
            return self._settled_total(chart)
        components = component_means(chart)
        stuck = [name for name in components if self._was_never_earned(chart, name)]
        if not stuck:
            return self._forgone_component(chart, components)
        evidence = tuple(cite(chart, name) for name in stuck[:MOST_NAMED])
        onset = self._first_reading(chart, stuck[0])
        text = f"No response ever earned {list_components(chart, stuck)}"
        if only_form_is_earned(chart):
            text = f"{text}; only the form of responses is rewarded."
            evidence = (cite(chart, _REWARD), *evidence)
            return Sighting("warning", text, evidence, find_onset=onset)
        # The total moves and the task was rewarded, so an earlier warning is certainly over.
        return Sighting("info", f"{text}.", evidence, find_onset=onset, ends_severer=True)

    def _forgone_component(self, chart: Chart, components: list[str]) -> Sighting | None:
        """A component that is rarely earned, after the groups have ceased to differ.

        A penalty is never above zero, so it is no such component.
        """
        flat = zero_variance_metric(chart)
        if flat is None or has_critic(chart) or is_solved(chart) or len(components) < 2:
            return None
        shares = chart.series(flat).tail(self.min_readings)
        share = sum(shares) / len(shares)
        if len(shares) < self.min_readings or not share >= FLAT_BATCHES:
            return None
        rare = [name for name in components if self._is_rarely_earned(chart.series(name))]
        if not rare:
            return None
        text = (
            f"Component {component_name(rare[0])} is mostly 0, and {share:.0%} of groups have "
            "equal rewards: only the other components were learned."
        )
        evidence = (cite(chart, rare[0]), *cite_all(chart, flat, _REWARD))
        onset = partial(first_step_where, chart.series(flat), lambda value: value >= FLAT_BATCHES)
        return Sighting("warning", text, evidence, find_onset=onset)

    def _is_rarely_earned(self, series: Series) -> bool:
        values = series.tail(WINDOW)
        is_earned = min(values) >= 0 < max(values) and len(values) >= self.min_readings
        return is_earned and values.count(0.0) >= self.constant_share * len(values)

    def _constant_total(self, chart: Chart) -> Sighting:
        reward = chart.series(_REWARD)
        text = f"The mean reward was exactly {reward.last:g} in the last {len(reward)} readings."
        if self._may_be_ranks(chart):
            text = (
                f"The mean reward is always {reward.last:g} although groups vary: rewards are "
                "ranks, or scores of another batch."
            )
            return Sighting("info", text, cite_all(chart, _REWARD, *_SPREADS))
        is_success = is_solved(chart) or (reward.last == 1 and confirms_success(chart))
        severity: Severity = "info" if is_success else "warning"
        onset = self._first_reading(chart, _REWARD)
        return Sighting(severity, text, (cite(chart, _REWARD),), find_onset=onset)

    def _has_settled(self, chart: Chart) -> bool:
        """Whether the reward moved at first and is constant now, at a level that is no success."""
        reward = chart.series(_REWARD)
        level = reward.level(self.min_readings)
        if not self._is_at(level, reward) or is_near_ceiling(reward):
            return False
        if self._is_by_chance(level, reward):
            return False
        best = reward.highest.level if reward.highest else level
        if level < 0 or level < best - self.max_spread * abs(best):
            return True
        return self._is_repeated(chart)

    def _is_repeated(self, chart: Chart) -> bool:
        """Whether each batch has the same mean and spread although responses of its groups differ.

        The means of batches of new responses are the same if all of them earn the same, and then
        no group varies.
        """
        if len(set(chart.series(_REWARD).tail(self.min_readings))) > 1:
            return False
        equal = chart.series(_EQUAL).tail(self.min_readings)
        if len(equal) < self.min_readings or not max(equal) < self.max_equal:
            return False
        of_parts = (f"{name.removesuffix(MEAN)}{STD}" for name in component_means(chart))
        names = (*_SPREADS, *of_parts)
        spreads = (chart.series(name).tail(self.min_readings) for name in names)
        return any(len(values) == self.min_readings and _is_one(values) for values in spreads)

    def _may_be_ranks(self, chart: Chart) -> bool:
        """Whether rewards may be ranks within a group, whose mean and spread never change.

        Then each group has the same rewards, so their spread is that of the whole batch. Scores
        that belong to another batch differ from group to group.
        """
        if not self._is_repeated(chart):
            return False
        of_batch, of_groups = (chart.series(name) for name in _SPREADS)
        if not len(of_batch) or not len(of_groups):
            return True
        return math.isclose(of_batch.last, of_groups.last, rel_tol=self.max_spread)

    def _is_by_chance(self, level: float, reward: Series) -> bool:
        """Whether earlier readings were at the level too, as failures are in a log of episodes.

        At that share of them, as many of the latest readings are at the level by chance.
        """
        limit, values = self.max_spread * abs(level), reward.tail(WINDOW)
        at_level = [abs(value - level) <= limit for value in values]
        earlier, latest = at_level[: -self.min_readings], at_level[-self.min_readings :]
        share = sum(earlier) / max(1, len(earlier))
        if len(earlier) < self.min_readings or share >= self.constant_share:
            return False
        # The number of readings at the level is binomial.
        chance = sum(
            math.comb(len(latest), count) * share**count * (1 - share) ** (len(latest) - count)
            for count in range(sum(latest), len(latest) + 1)
        )
        return chance > self.max_chance

    def _is_at(self, level: float, reward: Series) -> bool:
        limit, recent = self.max_spread * abs(level), reward.tail(self.min_readings)
        at_level = sum(abs(value - level) <= limit for value in recent)
        return at_level >= self.constant_share * len(recent)

    def _settled_total(self, chart: Chart) -> Sighting:
        reward = chart.series(_REWARD)
        level = reward.level(self.min_readings)
        limit = self.max_spread * abs(level)
        text = f"The mean reward has been {level:.4g} for {self.min_readings} readings."
        if self._is_repeated(chart):
            text = f"{text[:-1]} although groups vary: the scores are not those of the batch."
        onset = partial(first_step_where, reward, lambda value: abs(value - level) <= limit)
        return Sighting("warning", text, (cite(chart, _REWARD),), find_onset=onset)

    def _first_reading(self, chart: Chart, name: str) -> Callable[[], int]:
        """Finds the first step in the window: no reading ever differed."""
        return lambda: next(iter(chart.series(name)))[0]

    def _was_never_earned(self, chart: Chart, name: str) -> bool:
        if chart.series(name).last > 0 or any(part in name for part in PENALTY_NAMES):
            return False
        return self._never_moved(chart, name)

    def _never_moved(self, chart: Chart, name: str) -> bool:
        series = chart.series(name)
        return len(series) >= self.min_readings and never_moved(series)


def _is_one(values: list[float]) -> bool:
    """Whether all values are the same and above zero."""
    return values[0] > 0 and len(set(values)) == 1

"""GRP003."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite, cite_all
from grpodoctor.rules.shared.health.run_health import (
    CRITIC_IS_BASELINE,
    RECENT,
    first_step_where,
    has_critic,
)
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_CANCELLED = "groups/cancelled_rate"
_EFFECTIVE = "groups/effective_rate"
_STD = "reward/std"
_ZERO_VARIANCE = "groups/zero_variance_rate"
_REWARD = "reward/mean"


class RewardComponentsCancel(Rule):
    """Reward components vary within groups, but their sum is constant.

    What it sees:
        Groups whose responses all have the same total reward although its components differ, as a
        share of the groups that could have contributed gradient. If groups are not logged: a total
        reward with zero standard deviation over the batch, while two or more components have a
        nonzero one. If that is not logged either: a mean reward that is the same in twenty steps,
        groups without variance, and two or more components that vary.

    Why it matters:
        Components of opposite sign (correctness against a length or format penalty) can add up to a
        constant. Each component's curve then looks healthy, and there is no gradient.

    Evidence it needs:
        `groups/cancelled_rate` (optional: `groups/effective_rate`); or `reward/std` with
        `reward/component/<name>/std`; or `groups/zero_variance_rate` with the same and
        `reward/mean`.

    Remedies:
        Change the weights of the components so that no combination of them is constant.

    When it is wrong:
        With few responses per group, a group cancels by accident now and then, so the rule reports
        only a lasting share. A component with weight zero varies without canceling anything. A log
        that counts such groups as canceled raises this finding in any collapsed run. With a critic
        as the baseline, the rule reports only a total reward that is constant over the whole batch.

    References:
        TRL issue 3857, where the components' deviations were not zero and the total's was.
    """

    code: ClassVar[str] = "GRP003"
    name: ClassVar[str] = "reward-components-cancel"
    condition: ClassVar[Condition] = "cancelled-components"
    former_names: ClassVar[tuple[str, ...]] = ("cancelled-reward-components",)
    summary: ClassVar[str] = "Reward components vary within groups, but their sum is constant."
    inputs: ClassVar[tuple[Need, ...]] = ((_CANCELLED, _STD, _ZERO_VARIANCE),)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward",)
    references: ClassVar[tuple[str, ...]] = ("github.com/huggingface/trl/issues/3857",)

    min_share: float = 0.25
    """Share of the groups with varying components that cancel: a quarter of the signal."""
    all_share: float = 0.95
    """Share at which no signal is left except by accident."""
    patience: int = 20
    """Readings without any signal that are critical."""
    min_readings: int = 5
    """Minimum readings for a level."""
    zero_std: float = 1e-8
    """Standard deviation that counts as zero: far below the resolution of any reward in use."""

    def examine(self, chart: Chart) -> RuleResult:
        """Take the share of groups whose components cancel, else the spread of the batch."""
        if chart.is_fresh(_CANCELLED) and not has_critic(chart):
            return self._by_groups(chart)
        if chart.is_fresh(_STD):
            return self._by_batch(chart)
        return CRITIC_IS_BASELINE if has_critic(chart) else self._by_constant_total(chart)

    def _by_groups(self, chart: Chart) -> Sighting | None:
        series = chart.series(_CANCELLED)
        if series.last == 0 or len(series) < self.min_readings:
            return None
        canceled, effective = series.level(RECENT), chart.series(_EFFECTIVE)
        remaining = effective.level(RECENT) if len(effective) else 1 - canceled
        varying = canceled + remaining
        if not varying > 0 or not canceled / varying >= self.min_share:
            return None
        lost = canceled / varying
        is_critical = lost >= self.all_share and len(series) >= self.patience
        text = f"Reward components cancel in {lost:.0%} of the groups in which they vary."
        evidence = cite_all(chart, _CANCELLED, _EFFECTIVE)
        return Sighting("critical" if is_critical else "warning", text, evidence)

    def _by_batch(self, chart: Chart) -> Sighting | None:
        total = chart.series(_STD)
        if total.last > self.zero_std:
            return None
        varying = self._varying(chart)
        # A component that varies alone has weight zero: it is logged, but not part of the total.
        if len(varying) < 2:
            return None
        recent = total.tail(self.patience)
        is_critical = len(recent) == self.patience and max(recent) <= self.zero_std
        text = f"The total reward does not vary although {len(varying)} of its components do."
        evidence = (cite(chart, _STD), *(cite(chart, name) for name in varying[:4]))
        return Sighting("critical" if is_critical else "warning", text, evidence)

    def _by_constant_total(self, chart: Chart) -> Sighting | None:
        """A total that is the same in every step, while its components vary in each."""
        rewards, groups = chart.series(_REWARD).tail(self.patience), chart.series(_ZERO_VARIANCE)
        if len(rewards) < self.patience or max(rewards) - min(rewards) > self.zero_std:
            return None
        varying = self._varying(chart)
        if groups.level(RECENT) < self.all_share or len(varying) < 2:
            return None
        text = f"The total reward does not vary although {len(varying)} of its components do."
        names = (_REWARD, _ZERO_VARIANCE, *varying[:4])
        total = rewards[-1]
        onset = partial(
            first_step_where,
            chart.series(_REWARD),
            lambda value: abs(value - total) <= self.zero_std,
        )
        return Sighting("critical", text, cite_all(chart, *names), find_onset=onset)

    def _varying(self, chart: Chart) -> list[str]:
        """The standard deviations of the components that vary within the batch."""
        components = (name for name in chart.readings if name.startswith("reward/component/"))
        stds = [name for name in components if name.endswith("/std")]
        return [name for name in stds if (chart.value(name) or 0) > self.zero_std]

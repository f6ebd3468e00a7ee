"""GRP003."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite, cite_all
from grpodoctor.rules.shared.run_health import NEEDS_NO_VARIANCE, RECENT, has_critic
from grpodoctor.runs.chart import Chart

_CANCELLED = "groups/cancelled_rate"
_EFFECTIVE = "groups/effective_rate"
_STD = "reward/std"


@dataclass(frozen=True)
class RewardComponentsCancel(Rule):
    """Reward components vary within groups and cancel: the total does not.

    What it sees:
        Groups whose total reward is the same for all responses although its components differ, as a
        share of the groups that could have taught something. Where groups are not recorded: a total
        without spread over the whole batch beside two or more components with spread.

    Why it matters:
        Components of opposite sign (correctness against a length or format penalty) can add up to a
        constant. Every component's curve then looks alive and there is no gradient.

    Evidence it needs:
        `groups/cancelled_rate`, better with `groups/effective_rate`; or `reward/std` with
        `reward/component/<name>/std`.

    Remedies:
        Change the weights of the components, so that no combination of them is a constant.

    When it is wrong:
        With few responses to a group, a group cancels by accident now and then; only a share of the
        signal that lasts is reported. A component of weight zero varies alone and cancels nothing:
        a log that counts such groups as cancelled would raise this in any collapsed run. Where a
        critic is the baseline only a total without spread over the whole batch counts.

    References:
        TRL issue 3857, where the components' deviations were not zero and the total's was.
    """

    code: ClassVar[str] = "GRP003"
    name: ClassVar[str] = "reward-components-cancel"
    former_names: ClassVar[tuple[str, ...]] = ("cancelled-reward-components",)
    summary: ClassVar[str] = "Reward components differ within groups and cancel in the total."
    inputs: ClassVar[tuple[Need, ...]] = ((_CANCELLED, _STD),)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward",)
    references: ClassVar[tuple[str, ...]] = ("github.com/huggingface/trl/issues/3857",)

    share: float = 0.25
    """Share of the groups with varying components that is lost: a quarter of the signal."""
    all_groups: float = 0.95
    """Share at which no signal is left but for accidents."""
    patience: int = 20
    """Readings after which no signal at all is critical."""
    readings: int = 5
    """Fewest readings for a level."""
    zero: float = 1e-8
    """Deviation that is no spread: far below the resolution of any reward in use."""

    def examine(self, chart: Chart) -> RuleResult:
        """Take the share of the groups whose signal cancels, else the spread of the batch."""
        if chart.is_fresh(_CANCELLED) and not has_critic(chart):
            return self._by_groups(chart)
        return self._by_batch(chart) if chart.is_fresh(_STD) else NEEDS_NO_VARIANCE

    def _by_groups(self, chart: Chart) -> Sighting | None:
        series = chart.series(_CANCELLED)
        if series.last == 0 or len(series) < self.readings:
            return None
        cancelled, effective = series.level(RECENT), chart.series(_EFFECTIVE)
        alive = effective.level(RECENT) if len(effective) else 1 - cancelled
        if not cancelled or not cancelled / (cancelled + alive) >= self.share:
            return None
        lost = cancelled / (cancelled + alive)
        severe = lost >= self.all_groups and len(series) >= self.patience
        text = f"{lost:.0%} of the groups with signal lose it: their reward components cancel"
        evidence = cite_all(chart, _CANCELLED, _EFFECTIVE)
        return Sighting("critical" if severe else "warning", text, evidence)

    def _by_batch(self, chart: Chart) -> Sighting | None:
        total = chart.series(_STD)
        if total.last > self.zero:
            return None
        names = (name for name in chart.readings if name.startswith("reward/component/"))
        spreads = [name for name in names if name.endswith("/std")]
        varying = [name for name in spreads if (chart.value(name) or 0) > self.zero]
        # One that varies alone has a weight of zero: it is logged, and no part of the total.
        if len(varying) < 2:
            return None
        recent = total.tail(self.patience)
        severe = len(recent) == self.patience and max(recent) <= self.zero
        text = f"the reward has no spread although {len(varying)} of its components do: they cancel"
        evidence = (cite(chart, _STD), *(cite(chart, name) for name in varying[:4]))
        return Sighting("critical" if severe else "warning", text, evidence)

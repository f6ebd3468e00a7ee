"""REW002."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite
from grpodoctor.rules.shared.run_health import (
    RECENT,
    level_at,
    luck_of_extreme,
    noise_of,
    share_lost,
    since,
)
from grpodoctor.runs.chart import Chart, Series

_ACCURACY = "accuracy/train"
_REWARD = "reward/mean"
_WRONG = "groups/all_incorrect_rate"


@dataclass(frozen=True)
class RewardCollapse(Rule):
    """The outcome has fallen far below the best level of the run.

    What it sees:
        The recent level of accuracy, or else of reward, against the run's own best level, beyond
        the noise of a single reading. A run can die before it has a best level, within its first
        ten readings; then its first three tell, or groups that are wrong throughout: few at first,
        nearly all now.
        Accuracy that falls while the reward does not is another disease, and REW005's.

    Why it matters:
        A policy rarely comes back from it: the responses that would teach it are no longer sampled.
        What was learnt is in the last checkpoint before the onset.

    Evidence it needs:
        `accuracy/train` or `reward/mean`. Better with `groups/all_incorrect_rate`.

    Remedies:
        Go back to a checkpoint before the onset. If MIS002 stands beside it, its remedy is the
        cause's; else lower the learning rate or make fewer updates on each batch.

    When it is wrong:
        A curriculum that turns to harder prompts, a change of the reward or of the sampling
        temperature lower the outcome without any harm to the policy.

    References:
        Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training.
    """

    code: ClassVar[str] = "REW002"
    name: ClassVar[str] = "reward-collapse"
    summary: ClassVar[str] = "The outcome has fallen far below the best level of the run."
    inputs: ClassVar[tuple[Need, ...]] = ((_ACCURACY, _REWARD),)
    remedies: ClassVar[tuple[str, ...]] = ("lower-learning-rate", "fewer-updates", "stop-training")
    references: ClassVar[tuple[str, ...]] = (
        "Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training",
    )
    clearance: ClassVar[int] = 2 * RECENT

    warned: float = 0.35
    """Share of the best level that is lost. The best of many levels lies up to .08 above the
    typical one by chance in small runs (accuracy .7), a loss of .2; collapses lose .6 and more."""
    collapsed: float = 0.6
    """Share whose loss is critical: runs with a sick ratio go from .45 to .12, a loss of .73."""
    certain: float = 0.5
    """Share that must be lost beside what may have been luck, to be critical: of batches of eight
    responses the best level lies some .2 too high, and the worst as much too low."""
    groups: float = 0.6
    """Share of groups wrong throughout that a policy of use never comes to."""
    groups_lost: float = 0.4
    """Rise of that share since the first readings. A learning rate twenty times too high took it
    from .06 to .94 while accuracy swung between .05 and .25."""
    readings: int = 13
    """Fewest readings: the first three and a present that do not overlap."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the recent level with the best."""
        name = _ACCURACY if chart.is_fresh(_ACCURACY) else _REWARD
        series = chart.series(name)
        best = series.highest
        if best is None:
            return None
        return self._from_best(chart, name) or self._from_opening(series, name, chart)

    def _from_best(self, chart: Chart, name: str) -> Sighting | None:
        series = chart.series(name)
        best = series.highest
        if best is None or series.last >= best.level:
            return None
        if name == _ACCURACY and self._is_rewarded(chart, best.step):
            return None
        lost = share_lost(series)
        if lost < self.warned:
            return self._by_groups(chart, name)
        text = (
            f"{name} has fallen from {best.level:.3g} (step {best.step}) "
            f"to {series.level(RECENT):.3g}"
        )
        # Both levels are extremes of many: the best, and the present that is looked at each step.
        is_certain = lost - 2 * luck_of_extreme(series) >= self.certain
        severity: Severity = "critical" if lost >= self.collapsed and is_certain else "warning"
        began = self._half_way(series, best.level)
        return Sighting(severity, text, (cite(chart, name, best.level),), since=began)

    def _from_opening(self, series: Series, name: str, chart: Chart) -> Sighting | None:
        """A run that fell within its first ten readings, and has no better level than that."""
        opening, now = series.opening, series.level(2 * RECENT)
        if opening is None or opening.level <= 0 or len(series) < self.readings:
            return None
        if not opening.level - now > 4 * noise_of(series):
            return None
        left = max(series.tail(RECENT)) / opening.level
        is_dead = left <= 1 - self.collapsed
        # On a scale that goes below zero a third less than little is no loss.
        has_lost = left <= 1 - self.warned and series.lowest is not None and series.lowest.level > 0
        if not (is_dead or has_lost) or (
            name == _ACCURACY and self._is_rewarded(chart, opening.step)
        ):
            return None
        text = f"{name} has fallen from {opening.level:.3g} at the start to {now:.3g}"
        severity: Severity = "critical" if is_dead else "warning"
        began = self._half_way(series, opening.level)
        return Sighting(severity, text, (cite(chart, name, opening.level),), since=began)

    def _half_way(self, series: Series, before: float) -> Callable[[], int]:
        """Since when the outcome is nearer to what it is now than to what it was."""
        middle = (before + series.level(RECENT)) / 2
        return partial(since, series, lambda outcome: outcome <= middle)

    def _is_rewarded(self, chart: Chart, since: int) -> bool:
        reward = chart.series(_REWARD)
        then = level_at(reward, since)
        return then is not None and reward.level(RECENT) >= then

    def _by_groups(self, chart: Chart, name: str) -> Sighting | None:
        outcome, wrong = chart.series(name), chart.series(_WRONG)
        begun, start = outcome.opening, wrong.opening
        if begun is None or start is None or not chart.is_fresh(_WRONG):
            return None
        now, level = wrong.level(RECENT), outcome.level(RECENT)
        grown = now >= self.groups and now - start.level >= self.groups_lost
        if len(wrong) < self.readings or not grown or level > (1 - self.warned) * begun.level:
            return None
        text = (
            f"groups wrong throughout rose from {start.level:.0%} at the start to {now:.0%}, "
            f"{name} fell from {begun.level:.3g} to {level:.3g}"
        )
        evidence = (cite(chart, _WRONG, start.level), cite(chart, name, begun.level))
        return Sighting("critical", text, evidence)

"""REW010."""

from __future__ import annotations

import math
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite, cite_all
from grpodoctor.rules.shared.health.heldout import REWARD_HACKING
from grpodoctor.rules.shared.health.reward_components import (
    MEAN,
    STD,
    component_means,
    component_name,
)
from grpodoctor.rules.shared.health.run_health import (
    CEILING,
    RECENT,
    first_step_where,
    reading_noise,
    share_lost,
)
from grpodoctor.rules.shared.health.whole_run import (
    falls_over_run,
    never_moved,
    quarter_means,
    rises_over_run,
)
from grpodoctor.rules.shared.shapes.trend import change, start_level
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW, Series
from grpodoctor.vocabulary.component_names import is_about_task
from grpodoctor.vocabulary.conditions import Condition

_REWARD = "reward/mean"
_HARDLY_EARNED = ("recheck-reward", "reweight-rewards")
"""A weight does not help a component that next to no response earns."""


class DominatingRewardComponent(Rule):
    """One component of the reward dominates the others.

    What it sees:
        A component that supplies nearly all of the reward's rise while another one falls, or a
        reward that rises while the component named for correctness stays near zero (warning). Three
        cases are notes: a component for correctness that supplies the rise, another one that
        supplies it while the one for correctness stays where it was for the whole run (a warning if
        nineteen of twenty responses fail for 128 readings), and one that supplies nearly all of the
        reward's variance while others vary.

    Why it matters:
        Advantages are computed from the sum. A component on a larger scale, or one that is easier
        to earn, decides which responses are reinforced, and the policy trades the others for it.

    Evidence it needs:
        `reward/component/<name>/mean` of at least two components, or of the one for correctness,
        and `reward/mean`. Optional: the components' standard deviations.

    Remedies:
        Weight the components by their spread, or normalize each within the group before adding them
        (GDPO).

    When it is wrong:
        Correctness should dominate: check which component it is. A task whose first successes come
        late looks the same until then; REW004 reports a component that was never earned at all. A
        component that falls by design,
        such as a length penalty that longer reasoning incurs, is no loss. Components are logged
        without their weights, so variances are compared only if the components add up to the
        reward.

    References:
        GDPO, arXiv 2601.05242.
    """

    code: ClassVar[str] = "REW010"
    name: ClassVar[str] = "dominating-reward-component"
    condition: ClassVar[Condition] = "wrong-reward"
    summary: ClassVar[str] = "One component of the reward dominates the others."
    inputs: ClassVar[tuple[Need, ...]] = (_REWARD,)
    remedies: ClassVar[tuple[str, ...]] = ("reweight-rewards", "gdpo", "recheck-reward")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2601.05242",)
    persistence: ClassVar[int] = 3
    clearance: ClassVar[int] = 8
    cadence: ClassVar[int] = 5

    dominant_share: float = 0.95
    """Share of the total variance, or of the total rise."""
    fallen_share: float = 0.35
    """Share of its best level that the other component must have lost; see REW002."""
    min_trend: float = 3.5
    """Standard score of a fall over the whole run; see REW002."""
    min_rise: float = 4.0
    """Standard errors by which the dominating component must have risen."""
    additive_tolerance: float = 0.01
    """Share by which the sum of the components may differ from the reward. A larger difference
    means that the components are weighted or unknown."""
    max_correctness: float = 0.01
    """Mean of the correctness component below which next to no response is correct; see GRP002."""
    min_correctness_readings: int = 2 * RECENT
    """Readings that it must have: those of its mean, in which batches of 64 have 1,280 responses. A
    public run of 33 steps ended before a longer wait, at .46 with .0007 correct."""
    correctness_names: tuple[str, ...] = ("correct", "accuracy", "solved", "exact_match", "answer")
    """Parts of the names of components that measure the task itself."""
    other_names: tuple[str, ...] = ("incorrect", "format", "partial")
    """Parts of names that contain such a part and mean something else."""
    min_flat_readings: int = 40
    """Readings of a component for correctness, ten in each quarter, that show that it has not
    risen. In many runs the format is learned first, within tens of steps."""
    max_flat_correctness: float = 0.05
    """Mean of such a component over 128 readings below which the finding is a warning: nineteen of
    twenty responses fail, and only the other component was learned."""
    max_flat_trend: float = 2.0
    """Standard score of a rise over the whole run below which it may be chance."""
    min_readings: int = 20
    """Minimum readings: starting value and current level must not overlap."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look for a component that falls while another one rises, then at the variances."""
        components = component_means(chart)
        if len(chart.series(_REWARD)) < self.min_readings:
            return None
        judged = self._judge_correctness(chart, components)
        if judged is not None or len(components) < 2:
            return judged
        top, share = self._dominating(chart, components)
        by_rise = None
        if top is not None:
            by_rise = self._judge_losses(chart, components, top)
            by_rise = by_rise or self._judge_flat_correctness(chart, components, top, share)
        return by_rise or self._judge_spreads(chart, components)

    def _dominating(self, chart: Chart, components: list[str]) -> tuple[str | None, float]:
        """The component that supplies nearly all of the rise, with its share; None without one."""
        rises = {name: change(chart.series(name)) for name in components}
        rising = [name for name, (rise, error) in rises.items() if rise > self.min_rise * error]
        total = math.fsum(rises[name][0] for name in rising)
        if not rising or total <= 0:
            return None, 0.0
        top = max(rising, key=lambda name: rises[name][0])
        share = rises[top][0] / total
        return (top, share) if share >= self.dominant_share else (None, share)

    def _judge_losses(self, chart: Chart, components: list[str], top: str) -> Sighting | None:
        """A component that falls while another one supplies the rise."""
        losses = {name: self._loss(chart.series(name)) for name in components}
        fallen = {name: lost for name, lost in losses.items() if lost >= self.fallen_share}
        if not fallen:
            return None
        worst = max(fallen, key=lambda name: fallen[name])
        series, start = chart.series(top), start_level(chart.series(top))
        best = chart.series(worst).highest
        if start is None or best is None:
            return None
        text = (
            f"Component {component_name(top)} rose from {start:.3g} to {series.level(RECENT):.3g} "
            f"while {component_name(worst)} fell from {best.level:.3g} to "
            f"{chart.series(worst).level(RECENT):.3g}."
        )
        # Correctness is meant to dominate; another part that it costs is worth a note.
        severity: Severity = "info" if self._is_correctness(top) else "warning"
        evidence = (cite(chart, top, start), cite(chart, worst, best.level))
        middle = (best.level + chart.series(worst).level(RECENT)) / 2
        onset = partial(first_step_where, chart.series(worst), lambda value: value < middle)
        is_hacked = self._is_correctness(worst) and not self._is_correctness(top)
        return Sighting(
            severity,
            text,
            evidence,
            find_onset=onset,
            condition=REWARD_HACKING if is_hacked else None,
        )

    def _judge_flat_correctness(
        self, chart: Chart, components: list[str], top: str, share: float
    ) -> Sighting | None:
        """A component for correctness that has not risen in the whole run."""
        if self._is_correctness(top) or not rises_over_run(chart.series(_REWARD)):
            return None
        rise = change(chart.series(top))[0]
        flat = [
            name
            for name in components
            if self._is_correctness(name) and self._stayed(chart.series(name), rise)
        ]
        start = start_level(chart.series(top))
        if not flat or start is None:
            return None
        text = (
            f"Component {component_name(top)} supplies {share:.0%} of the reward's rise; component "
            f"{component_name(flat[0])} stayed at {chart.series(flat[0]).mean(2 * RECENT):.2g}."
        )
        evidence = (cite(chart, top, start), *cite_all(chart, flat[0]))
        series = chart.series(flat[0])
        fails = len(series) >= WINDOW and series.mean(WINDOW) < self.max_flat_correctness
        if fails:
            return Sighting("warning", text, evidence, _HARDLY_EARNED)
        return Sighting("info", text, evidence)

    def _stayed(self, series: Series, rise: float) -> bool:
        """Whether a component has certainly not taken part in a rise, although it could have."""
        if len(series) < self.min_flat_readings or never_moved(series) or _is_full(series):
            return False
        first, last = quarter_means(series)
        error = reading_noise(series) * math.sqrt(2 / (len(series) / 4))
        highest_part = max(0.0, last - first) + 2 * error
        is_flat = last - first <= 2 * error and series.trend < self.max_flat_trend
        return is_flat and highest_part <= (1 - self.dominant_share) * rise

    def _judge_correctness(self, chart: Chart, components: list[str]) -> Sighting | None:
        """A reward that rises while next to no response is correct."""
        failed = [name for name in components if self._is_near_zero(chart, name)]
        if not failed:
            return None
        reward, start = chart.series(_REWARD), start_level(chart.series(_REWARD))
        rise, error = change(reward)
        if start is None or not rise > self.min_rise * error:
            return None
        text = (
            f"The reward rose from {start:.3g} to {reward.level(RECENT):.3g} while component "
            f"{component_name(failed[0])} stayed at {chart.series(failed[0]).mean(2 * RECENT):.2g}."
        )
        evidence = (cite(chart, _REWARD, start), cite(chart, failed[0]))
        return Sighting("warning", text, evidence, _HARDLY_EARNED)

    def _is_near_zero(self, chart: Chart, name: str) -> bool:
        """Whether a component for correctness is hardly ever earned and does not rise."""
        series = chart.series(name)
        if not self._is_correctness(name):
            return False
        if len(series) < self.min_correctness_readings or never_moved(series):
            return False
        rise, error = change(series)
        is_low = 0 <= series.mean(2 * RECENT) <= self.max_correctness
        return is_low and not rise > self.min_rise * error

    def _is_correctness(self, name: str) -> bool:
        """Whether a component measures the task itself, by its name."""
        component = component_name(name).lower()
        if any(part in component for part in self.other_names):
            return False
        return is_about_task(component, self.correctness_names)

    def _loss(self, series: Series) -> float:
        """The share that a component lost of its best level, or over the whole run, if it paid."""
        fall, error = change(series)
        if series.highest is None or series.highest.level <= 0 or not fall < -error:
            return 0.0
        return max(share_lost(series), self._slow_loss(series))

    def _slow_loss(self, series: Series) -> float:
        """The share lost over the whole run: a slow fall of a noisy mean has no best level."""
        first, last = quarter_means(series)
        if not falls_over_run(series) or series.trend > -self.min_trend or not first > last >= 0:
            return 0.0
        return 1 - last / first

    def _judge_spreads(self, chart: Chart, components: list[str]) -> Sighting | None:
        if not self._adds_up(chart, components):
            return None
        spreads = {name: self._spread(chart, name) for name in components}
        varying = {name: value for name, value in spreads.items() if value > 0}
        total = math.fsum(value**2 for value in varying.values())
        if len(varying) < 2 or total <= 0:
            return None
        top = max(varying, key=lambda name: varying[name])
        share = varying[top] ** 2 / total
        if share < self.dominant_share:
            return None
        text = (
            f"Component {component_name(top)} supplies {share:.0%} of the reward's variance; "
            f"{len(varying) - 1} other components hardly count."
        )
        stds = [name.removesuffix(MEAN) + STD for name in varying]
        return Sighting("info", text, cite_all(chart, *stds))

    def _adds_up(self, chart: Chart, components: list[str]) -> bool:
        total = math.fsum(chart.series(name).last for name in components)
        reward = chart.series(_REWARD).last
        return abs(total - reward) <= self.additive_tolerance * max(abs(reward), abs(total))

    def _spread(self, chart: Chart, name: str) -> float:
        series = chart.series(name.removesuffix(MEAN) + STD)
        level = series.level(RECENT) if len(series) else 0.0
        return level if math.isfinite(level) else 0.0


def _is_full(series: Series) -> bool:
    """Whether next to all of a component is earned: of 1, or of the next multiple of a half."""
    most = max(1.0, math.ceil(2 * max(series.tail(len(series)))) / 2)
    return series.level(RECENT) >= CEILING * most

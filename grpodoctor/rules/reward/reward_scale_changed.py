"""REW016."""

from __future__ import annotations

import math
from functools import partial
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
from grpodoctor.rules.shared.reward_components import MEAN, STD, component_means
from grpodoctor.rules.shared.run_health import RECENT
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_SPREADS = ("reward/std", "groups/reward_std")
_MEAN = "reward/mean"
_UNDIVIDED = frozenset({"centred", "leave_one_out", "none", "gae"})


class RewardScaleChanged(Rule):
    """The rewards of one step differ ten times as much as those of the steps before, and stay so.

    What it sees:
        A spread of the rewards that rises by a factor of ten or more from one reading to the next
        and keeps its level. Learning changes a spread within its bounds and over many steps.

    Why it matters:
        The reward function or its weights were replaced in the middle of the run: after a resume, a
        deployment of the judge, a change of units. Rewards before and after cannot be compared, so
        the curve's rise is none. Where advantages are not divided by the spread, updates grow by
        the same factor.

    Evidence it needs:
        `reward/mean`, and `reward/std`, `groups/reward_std` or the spread of a component. Optional:
        the setting `advantage`, which tells whether the updates grew as well.

    Remedies:
        Score one batch from before the step with the present reward function, and compare. Scale
        the rewards back, or start a new run.

    When it is wrong:
        A curriculum whose tasks pay on different scales. Updates are the same as before if
        advantages are divided by the spread of their group, but the readings before and after the
        step cannot be compared all the same: a rise from one to the other is not progress.

    References:
        Dr. GRPO, arXiv 2503.20783, on the division by the standard deviation.
    """

    code: ClassVar[str] = "REW016"
    name: ClassVar[str] = "reward-scale-changed"
    condition: ClassVar[Condition] = "wrong-reward"
    explains: ClassVar[tuple[Condition, ...]] = ("gradient-spike", "oversized-updates")
    summary: ClassVar[str] = "The spread of the rewards rose tenfold from one step to the next."
    inputs: ClassVar[tuple[Need, ...]] = (_MEAN,)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.20783",)
    persistence: ClassVar[int] = 1
    """The rule itself compares several readings before and after the step."""
    clearance: ClassVar[int] = 10**6
    """The readings before the step leave the window, and the rewards stay incomparable."""

    factor: float = 10.0
    """Factor between the highest spread before the step and the lowest after it. Rewards of 0 and 1
    spread by .5 at most, and one success among 64 responses by .12."""
    after: int = 5
    """Readings since the step."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the latest readings with those before them."""
        of_parts = [f"{name.removesuffix(MEAN)}{STD}" for name in component_means(chart)]
        spreads = [name for name in (*_SPREADS, *of_parts) if chart.is_fresh(name)]
        if not spreads:
            return NOT_LOGGED
        return next(filter(None, (self._jump(chart, name) for name in spreads)), None)

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
        evidence = (cite(chart, name, highest), *cite_all(chart, _MEAN))
        return Sighting("warning", f"{text}.", evidence, find_onset=partial(int, step))

"""REW007."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite
from grpodoctor.rules.shared.health.reward_components import (
    MEAN,
    MOST_NAMED,
    STD,
    component_means,
    list_components,
)
from grpodoctor.rules.shared.health.whole_run import never_moved
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_REWARD = "reward/mean"


class ConstantRewardComponent(Rule):
    """Every response earns the same amount of a reward component.

    What it sees:
        A component whose mean has the same value above zero in nearly every reading, while the
        total reward moves. The finding is `info`.

    Why it matters:
        An amount that every response earns cancels in the advantages and contributes no gradient.
        It makes the reward look higher than it is, and hides that the component teaches nothing: a
        language or format check that any text passes, a penalty with the wrong sign.

    Evidence it needs:
        `reward/component/<name>/mean` of at least two components, and `reward/mean`.

    Remedies:
        Score a response by hand that the component should reject. If it passes, the check is
        broken; if not, the component has nothing to do and can be removed.

    When it is wrong:
        Every response earns a format that the policy knows from the start. The component is then a
        safeguard, and contributes as soon as a response fails it. A component at zero or below is
        reported by REW004.

    References:
        open-r1 issues 293, 215 and 557 for reward functions that do not do what they were meant to.
    """

    code: ClassVar[str] = "REW007"
    name: ClassVar[str] = "constant-reward-component"
    condition: ClassVar[Condition] = "expected"
    summary: ClassVar[str] = "Every response earns the same amount of a reward component."
    inputs: ClassVar[tuple[Need, ...]] = (_REWARD,)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward",)
    references: ClassVar[tuple[str, ...]] = ("github.com/huggingface/open-r1/issues/293",)
    persistence: ClassVar[int] = 1
    clearance: ClassVar[int] = 1
    cadence: ClassVar[int] = 10

    min_readings: int = 20
    """Readings with the same value; see REW004."""
    constant_share: float = 0.95
    """Share of the readings with this value: single responses fail a check now and then."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look for components that stay constant above zero while the total moves."""
        components = component_means(chart)
        if len(components) < 2 or never_moved(chart.series(_REWARD)):
            return None
        constant = [name for name in components if self._is_constant(chart, name)]
        if not constant:
            return None
        text = (
            f"Every response earns the same {list_components(chart, constant)}, without gradient."
        )
        return Sighting("info", text, tuple(cite(chart, name) for name in constant[:MOST_NAMED]))

    def _is_constant(self, chart: Chart, name: str) -> bool:
        series = chart.series(name)
        if len(series) < self.min_readings or series.last <= 0:
            return False
        values = series.tail(len(series))
        if values.count(series.last) < self.constant_share * len(values):
            return False
        return not chart.value(name.removesuffix(MEAN) + STD)

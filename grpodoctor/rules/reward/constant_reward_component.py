"""REW007."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite
from grpodoctor.rules.shared.run_health import never_moved
from grpodoctor.runs.chart import Chart

_REWARD = "reward/mean"
_PREFIX, _MEAN, _SPREAD = "reward/component/", "/mean", "/std"
_MOST_NAMED = 4


@dataclass(frozen=True)
class ConstantRewardComponent(Rule):
    """A component of the reward is given to every response alike.

    What it sees:
        A component whose mean has had one and the same value above zero in every reading, while the
        reward as a whole moves. It is a note.

    Why it matters:
        What every response earns cancels in the advantages and teaches nothing. It makes the reward
        look higher than it is, and hides that something was to be taught and is not: a language or
        format check that any text passes, a penalty with the wrong sign.

    Evidence it needs:
        `reward/component/<name>/mean` of at least two components, and `reward/mean`.

    Remedies:
        Score a response by hand that the component should turn down. If it passes, the check is
        broken; if not, the component has nothing to do and can go.

    When it is wrong:
        A format that the policy knows from the start is earned by every response, and the component
        stands guard: it begins to count once a response fails it. A component of zero or less is
        REW004's.

    References:
        open-r1 issues 293, 215 and 557 for reward functions that do not do what they were meant to.
    """

    code: ClassVar[str] = "REW007"
    name: ClassVar[str] = "constant-reward-component"
    summary: ClassVar[str] = "A component of the reward is given to every response alike."
    inputs: ClassVar[tuple[Need, ...]] = (_REWARD,)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward",)
    references: ClassVar[tuple[str, ...]] = ("github.com/huggingface/open-r1/issues/293",)
    persistence: ClassVar[int] = 1
    clearance: ClassVar[int] = 1
    cadence: ClassVar[int] = 10

    readings: int = 20
    """Readings without a move; see REW004."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look for components that stand still above zero while the total moves."""
        components = [
            name
            for name in chart.readings
            if name.startswith(_PREFIX) and name.endswith(_MEAN) and chart.is_fresh(name)
        ]
        if len(components) < 2 or never_moved(chart.series(_REWARD)):
            return None
        given = [name for name in sorted(components) if self._is_given_away(chart, name)]
        if not given:
            return None
        each = ", ".join(
            f"{name.removeprefix(_PREFIX).removesuffix(_MEAN)} ({chart.series(name).last:g})"
            for name in given[:_MOST_NAMED]
        )
        text = (
            f"reward components that every response has earned alike, and none learns from: {each}"
        )
        return Sighting("info", text, tuple(cite(chart, name) for name in given[:_MOST_NAMED]))

    def _is_given_away(self, chart: Chart, name: str) -> bool:
        series = chart.series(name)
        if len(series) < self.readings or series.last <= 0 or not never_moved(series):
            return False
        return not chart.value(name.removesuffix(_MEAN) + _SPREAD)

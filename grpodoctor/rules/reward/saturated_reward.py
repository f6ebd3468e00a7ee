"""REW006."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite
from grpodoctor.rules.shared.run_health import never_moved
from grpodoctor.runs.chart import Chart

_ACCURACY = "accuracy/train"
_REWARD = "reward/mean"
_GROUPS = ("groups/zero_variance_rate", "groups/all_correct_rate")


@dataclass(frozen=True)
class SaturatedReward(Rule):
    """Nearly every response earns all that there is: nothing is left to learn.

    What it sees:
        An accuracy, or a reward between 0 and 1, that stays at its ceiling. In a log with groups it
        is GRP001 that says so, with the share of groups that carry no signal.

    Why it matters:
        It is success, and from here on compute without a return: advantages are zero in all groups
        but a few. A run that ends flat at the top has mostly been flat there for long.

    Evidence it needs:
        `accuracy/train` or `reward/mean`.

    Remedies:
        Stop, or train on harder prompts.

    When it is wrong:
        A reward that is given to any response stands at its ceiling too: one that never moved at
        all is REW004's, and one that parts from accuracy REW005's. A reward whose ceiling is not 1
        is not seen.

    References:
        DAPO, arXiv 2503.14476, section 3.2, on prompts that are solved.
    """

    code: ClassVar[str] = "REW006"
    name: ClassVar[str] = "saturated-reward"
    summary: ClassVar[str] = "Nearly every response earns all there is: nothing is left to learn."
    inputs: ClassVar[tuple[Need, ...]] = ((_ACCURACY, _REWARD),)
    remedies: ClassVar[tuple[str, ...]] = ("stop-training", "harder-prompts")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)
    clearance: ClassVar[int] = 20

    solved: float = 0.98
    """Level of the latest readings. A run of strangers stood at 1 in nine readings of ten."""
    readings: int = 20
    """Readings that stay there: a lucky batch is no solution."""

    def examine(self, chart: Chart) -> RuleResult:
        """Take the latest level, where nothing that knows the groups speaks."""
        name = _ACCURACY if chart.is_fresh(_ACCURACY) else _REWARD
        series = chart.series(name)
        if series.last < self.solved or len(series) < self.readings:
            return None
        if any(len(chart.series(each)) for each in _GROUPS) or never_moved(series):
            return None
        if not all(0 <= value <= 1 + 1e-6 for _, value in series):
            return None
        level = series.level(self.readings)
        if level < self.solved:
            return None
        start = chart.baseline(name)
        text = (
            f"{name} has stood at {level:.3g} for {self.readings} readings: nothing left to learn"
        )
        return Sighting("info", text, (cite(chart, name, start.level if start else None),))

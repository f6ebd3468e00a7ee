"""REW006."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite, cite_all
from grpodoctor.rules.shared.health.heldout import confirms_success, low_heldout_accuracy
from grpodoctor.rules.shared.health.run_health import mean_is_high
from grpodoctor.rules.shared.health.whole_run import never_moved
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_ACCURACY = "accuracy/train"
_REWARD = "reward/mean"
_HELDOUT = "accuracy/heldout"
_GROUPS = ("groups/zero_variance_rate", "groups/all_correct_rate")


class SaturatedReward(Rule):
    """Nearly every response earns the full reward: nothing is left to learn.

    What it sees:
        Accuracy, or a reward between 0 and 1, that stays at its ceiling. Its mean must be above .9
        as well, since most batches of few responses can be all-correct by chance. In a log with
        group statistics GRP001 reports it instead, with the share of groups without gradient. The
        finding is `info`, and a warning if held-out accuracy is below .8: training prompts that are
        solved are then no success. A held-out reward counts if it is a share of successes and has
        lost half of its first level.

    Why it matters:
        The run has succeeded, and further compute brings no gain: advantages are zero in all but a
        few groups. A run that ends flat at the top has usually been flat there for a long time.

    Evidence it needs:
        `accuracy/train` or `reward/mean`. Optional: `accuracy/heldout` or `reward/heldout`.

    Remedies:
        Stop, or train on harder prompts. If the held-out accuracy is low and never rose, check the
        reward first. A reward that is full from the first reading on may pay
        for anything: test it with wrong responses first.

    When it is wrong:
        A reward that every response receives is at its ceiling too: REW004 reports one that never
        moved, unless held-out prompts confirm it, and REW005 one that diverges from accuracy. The
        rule does not see a reward whose ceiling is not 1.

    References:
        DAPO, arXiv 2503.14476, section 3.2, on prompts that are solved.
    """

    code: ClassVar[str] = "REW006"
    name: ClassVar[str] = "saturated-reward"
    condition: ClassVar[Condition] = "solved"
    summary: ClassVar[str] = (
        "Nearly every response earns the full reward: nothing is left to learn."
    )
    inputs: ClassVar[tuple[Need, ...]] = ((_ACCURACY, _REWARD),)
    remedies: ClassVar[tuple[str, ...]] = ("keep-checkpoint", "harder-prompts", "recheck-reward")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)
    clearance: ClassVar[int] = 20

    min_level: float = 0.98
    """Level of the latest readings. A public run was at 1 in nine readings of ten."""
    min_readings: int = 20
    """Readings that stay there: a lucky batch is no solution."""

    def examine(self, chart: Chart) -> RuleResult:
        """Take the latest level, in logs without group statistics."""
        name = _ACCURACY if chart.is_fresh(_ACCURACY) else _REWARD
        series = chart.series(name)
        if series.last < self.min_level or len(series) < self.min_readings:
            return None
        if any(len(chart.series(group_rate)) for group_rate in _GROUPS):
            return None
        if never_moved(series) and not confirms_success(chart):
            return None
        if not series.is_within(0, 1 + 1e-6):
            return None
        level = series.level(self.min_readings)
        if level < self.min_level or not mean_is_high(series):
            return None
        start = chart.baseline(name)
        noun = "Accuracy" if name == _ACCURACY else "Reward"
        text = f"{noun} has a median of {level:.3g} over {self.min_readings} readings"
        remedies: tuple[str, ...] | None = None
        severity: Severity = "info"
        end = ": nothing is left to learn."
        if min(series.head(3)) >= self.min_level:  # the policy had no time to learn it
            text = f"{noun} was {series.head(1)[0]:.3g} from the first reading"
            remedies = ("recheck-reward", "harder-prompts")
        if (low := low_heldout_accuracy(chart)) is not None:
            severity, end = "warning", f", but {low.noun} is only {low.level:.0%}."
            remedies = (
                ("harder-prompts",) if low.has_risen else ("recheck-reward", "harder-prompts")
            )
        evidence = (
            cite(chart, name, start.level if start else None),
            *cite_all(chart, _HELDOUT, "reward/heldout"),
        )
        latest = list(series)[-self.min_readings :]
        onset = next(step for step, value in latest if value >= self.min_level)
        return Sighting(severity, text + end, evidence, remedies, find_onset=lambda: onset)

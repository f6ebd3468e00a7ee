"""GRP004."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.run_health import (
    RECENT,
    has_improved,
    never_moved,
    outcome_of,
    share_of,
    since,
    why_no_variance,
)
from grpodoctor.runs.chart import Chart

_FLAT = "groups/zero_variance_rate"
_RIGHT = "groups/all_correct_rate"
_WRONG = "groups/all_incorrect_rate"
_CANCELLED = "groups/cancelled_rate"


@dataclass(frozen=True)
class ZeroRewardStd(Rule):
    """Groups carry no signal, and correctness does not explain why.

    What it sees:
        Groups without variance beyond those that are right or wrong throughout and those whose
        components cancel: the reward gives the same to responses of different quality. In a log
        that does not split such groups, more of them than the accuracy, or a reward of right and
        wrong, can explain. A note where the reward is on a scale of its own and has not risen, so
        that nothing tells success from failure.

    Why it matters:
        It is the reward, and no prompt mix or sampling trick will help: one that is always given, a
        judge that always answers the same, a format reward that every response earns, responses
        that are all cut before the part that is judged. A rising or high reward curve hides it.

    Evidence it needs:
        `groups/zero_variance_rate`. Better with `groups/all_correct_rate`,
        `groups/all_incorrect_rate` and `groups/cancelled_rate`.

    Remedies:
        Score a right, a wrong and an empty response by hand. If all responses are cut at the length
        limit (LEN002), raise it first.

    When it is wrong:
        A graded reward may by accident give a whole group the same middle grade; half of all groups
        is no accident. Without correctness on record a reward that has risen counts as success when
        its groups thin out, whatever it really rewards.

    References:
        DAPO, arXiv 2503.14476, section 3.2, for what such groups cost.
    """

    code: ClassVar[str] = "GRP004"
    name: ClassVar[str] = "zero-reward-std"
    former_names: ClassVar[tuple[str, ...]] = ("constant-reward-within-groups",)
    summary: ClassVar[str] = "Groups carry no signal, and correctness does not explain why."
    inputs: ClassVar[tuple[Need, ...]] = (_FLAT,)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward", "longer-limit")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)
    clearance: ClassVar[int] = 2 * RECENT

    share: float = 0.5
    """Share of groups without an explanation; healthy runs have next to none."""
    all_groups: float = 0.98
    """Share of groups without variance at which no signal is left but for accidents."""
    patience: int = 20
    """Readings after which no signal at all is critical."""
    allowance: float = 0.1
    """Added to the share that a reward of right and wrong can explain, for the noise of both."""
    readings: int = 5
    """Fewest readings for a level."""

    def examine(self, chart: Chart) -> RuleResult:
        """Take the recent share of groups that nothing explains."""
        series = chart.series(_FLAT)
        if series.last < self.share or len(series) < self.readings:
            return None
        flat = share_of(series, RECENT)
        if not flat >= self.share:
            return None
        unexplained = self._unexplained(chart, flat)
        if not unexplained >= self.share:
            return self._of_unknown_cause(chart, flat)
        severe = flat >= self.all_groups and len(series) >= self.patience
        text = (
            f"{unexplained:.0%} of the groups have equal rewards "
            "that are neither all right nor all wrong, as far as it is recorded"
        )
        evidence = cite_all(chart, _FLAT, _RIGHT, _WRONG, _CANCELLED, outcome_of(chart))
        severity: Severity = "critical" if severe else "warning"
        return Sighting(severity, text, evidence, since=self._began(chart))

    def _of_unknown_cause(self, chart: Chart, flat: float) -> Sighting | None:
        """A note where nothing at hand tells success from a reward that says nothing."""
        reward = chart.series("reward/mean")
        told = any(chart.is_fresh(name) for name in (_RIGHT, _WRONG, "accuracy/train"))
        bounded = all(0 <= value <= 1 for _, value in reward)
        if told or not len(reward) or bounded or has_improved(chart):
            return None
        text = (
            f"{flat:.0%} of the groups have equal rewards and carry no signal; whether they are "
            "right or wrong is not recorded, and the reward has not risen"
        )
        remedies = ("recheck-reward", "dynamic-sampling")
        evidence = cite_all(chart, _FLAT, "reward/mean")
        return Sighting("info", text, evidence, remedies, self._began(chart))

    def _began(self, chart: Chart) -> Callable[[], int]:
        return partial(since, chart.series(_FLAT), lambda flat: flat >= self.share)

    def _unexplained(self, chart: Chart, flat: float) -> float:
        parts = [name for name in (_RIGHT, _WRONG, _CANCELLED) if chart.is_fresh(name)]
        is_split = {_RIGHT, _WRONG} <= set(parts)
        if not is_split and (why_no_variance(chart) or self._may_be_solved(chart, flat)):
            return 0.0
        return flat - sum(share_of(chart.series(name), RECENT) for name in parts)

    def _may_be_solved(self, chart: Chart, flat: float) -> bool:
        """Whether success or failure on whole groups can explain a share, correctness unknown."""
        reward = chart.series("reward/mean")
        if len(chart.series("accuracy/train")) or not len(reward) or never_moved(reward):
            return False
        if not all(0 <= value <= 1 for _, value in reward):  # on a scale of its own
            return flat < self.all_groups or has_improved(chart) is True
        level = reward.level(RECENT)
        return flat <= max(level, 1 - level) + self.allowance

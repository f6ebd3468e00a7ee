"""GRP002."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.run_health import (
    first_step_where,
    has_critic,
    has_improved,
    outcome_metric,
    typical_share,
    zero_variance_cause,
)
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_ALL_INCORRECT = "groups/all_incorrect_rate"
_ZERO_VARIANCE = "groups/zero_variance_rate"


@dataclass(frozen=True)
class AllIncorrectGroups(Rule):
    """Many groups are all-incorrect, so they contribute no gradient.

    What it sees:
        A large share of groups without a correct response, for long enough and without a rise of
        accuracy or reward. If all groups are all-incorrect for twenty readings, nothing is being
        learned, and the finding is critical. If few groups were all-incorrect at the start, the
        policy got worse; the prompts are not too hard. The finding is then `info` alongside REW002,
        with other remedies.

    Why it matters:
        Such groups have advantages of zero. When all groups are like that, the gradient is zero or
        comes from the KL penalty alone, and the run only burns compute.

    Evidence it needs:
        `groups/all_incorrect_rate`; or `groups/zero_variance_rate` with `accuracy/train`, or with a
        reward that is exactly zero.

    Remedies:
        First check that the reward function accepts a correct answer at all: the parser is the most
        frequent cause. Then easier prompts, a warm start, or dynamic sampling if part of the
        prompts is solvable.

    When it is wrong:
        A hard task can start like this and recover, so a share below all groups is reported only
        after twenty readings without progress. Unsolvable prompts in the mix keep the share high
        for the whole run; dynamic sampling is the right remedy for those. In a run that collapses,
        the share rises about twenty steps after the cause. With a critic as the baseline, such
        groups do contribute gradient. The rule then reports only the case that all groups are
        all-incorrect, since there is no correct response to learn from.

    References:
        DAPO, arXiv 2503.14476, section 3.2.
    """

    code: ClassVar[str] = "GRP002"
    name: ClassVar[str] = "all-incorrect-groups"
    condition: ClassVar[Condition] = "zero-rewards"
    former_names: ClassVar[tuple[str, ...]] = ("zero-variance-groups-too-hard",)
    summary: ClassVar[str] = "Many groups are all-incorrect, so they contribute no gradient."
    inputs: ClassVar[tuple[Need, ...]] = ((_ALL_INCORRECT, _ZERO_VARIANCE),)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward", "easier-prompts", "dynamic-sampling")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)
    clearance: ClassVar[int] = 20

    all_share: float = 0.98
    """Share at which no signal is left except by accident. A public run that learned nothing had a
    median of 1.0 and a minimum of .94."""
    warning_share: float = 0.5
    """Share for a warning if it lasts. A healthy run that began at .75 was far below after thirty
    steps."""
    info_share: float = 0.25
    """Share for `info` if it lasts: dynamic sampling then saves a quarter of the compute. In a
    small run with 30% unsolvable prompts (share .33) it raised accuracy from .60 to .70."""
    min_worsening: float = 0.2
    """Rise since the first readings that equally hard prompts do not explain: the share of sixteen
    groups scatters by .1."""
    min_readings: int = 5
    """Minimum readings for any finding."""
    patience: int = 20
    """Readings before a share below `all_share` counts, and before all groups are critical."""

    def examine(self, chart: Chart) -> RuleResult:
        """Take the recent share of all-incorrect groups."""
        name = _ALL_INCORRECT if chart.is_fresh(_ALL_INCORRECT) else _ZERO_VARIANCE
        series = chart.series(name)
        if series.last < self.info_share / 2 or len(series) < self.min_readings:
            return None
        share = typical_share(series, self.patience)
        severity = self._severity(chart, share, is_long=len(series) >= self.patience)
        if severity is None:
            return None
        if name == _ZERO_VARIANCE and zero_variance_cause(chart) != "all-incorrect":
            return None
        evidence = cite_all(chart, name, outcome_metric(chart))
        onset = partial(first_step_where, series, lambda value: value >= self.info_share)
        opening = series.opening
        if opening and share - opening.level >= self.min_worsening:
            text = (
                f"All-incorrect groups rose from {opening.level:.0%} to {share:.0%}, "
                "so the policy got worse."
            )
            if share < self.all_share:
                severity = "info"  # REW002 raises the alarm
            remedies = ("lower-learning-rate", "fewer-updates")
            return Sighting(severity, text, evidence, remedies, onset)
        text = f"{share:.0%} of groups are all-incorrect, so they contribute no gradient."
        return Sighting(severity, text, evidence, find_onset=onset)

    def _severity(self, chart: Chart, share: float, *, is_long: bool) -> Severity | None:
        if share >= self.all_share:
            return "critical" if is_long else "warning"
        if has_critic(chart):
            return None
        if not (is_long and share >= self.info_share) or has_improved(chart):
            return None
        return "warning" if share >= self.warning_share else "info"

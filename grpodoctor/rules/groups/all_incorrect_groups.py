"""GRP002."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.run_health import (
    has_critic,
    has_improved,
    outcome_of,
    share_of,
    since,
    why_no_variance,
)
from grpodoctor.runs.chart import Chart

_WRONG = "groups/all_incorrect_rate"
_FLAT = "groups/zero_variance_rate"


@dataclass(frozen=True)
class AllIncorrectGroups(Rule):
    """Many groups carry no signal because every response in them is wrong.

    What it sees:
        A large share of groups in which no response is correct, for long enough and without an
        outcome that rises. All of them for twenty readings is critical: nothing is being learnt.
        Where few were wrong throughout at the start, it is the policy that got worse, not the
        prompts that are too hard: a note beside REW002, and the remedies are others.

    Why it matters:
        Such groups have advantages of zero. When all groups are like that, the gradient is zero or
        comes from the KL penalty alone, and the run burns compute until somebody looks.

    Evidence it needs:
        `groups/all_incorrect_rate`; or `groups/zero_variance_rate` with `accuracy/train`, or with a
        reward that is exactly zero.

    Remedies:
        First check that the reward function accepts a right answer at all: the parser is the most
        frequent cause. Then easier prompts, a warm start, or dynamic sampling if a part of the
        prompts is solvable.

    When it is wrong:
        A hard task begins like this and gets over it; that is why anything short of all groups
        needs twenty readings without progress. Prompts mixed in that nobody can solve keep the
        share up for ever; dynamic sampling is the right answer to those. In a run that collapses it
        follows the cause by some twenty steps. Where a critic is the baseline such groups teach as
        well, and only all of them are a finding: then there is nothing right anywhere to learn.

    References:
        DAPO, arXiv 2503.14476, section 3.2.
    """

    code: ClassVar[str] = "GRP002"
    name: ClassVar[str] = "all-incorrect-groups"
    former_names: ClassVar[tuple[str, ...]] = ("zero-variance-groups-too-hard",)
    summary: ClassVar[str] = "Many groups are wrong throughout and carry no signal."
    inputs: ClassVar[tuple[Need, ...]] = ((_WRONG, _FLAT),)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward", "easier-prompts", "dynamic-sampling")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)
    clearance: ClassVar[int] = 20

    all_groups: float = 0.98
    """Share at which no signal is left but for accidents: a run of strangers that learnt nothing
    had 1.0 at the median and .94 at the least."""
    most: float = 0.5
    """Share that is a warning when it lasts. A healthy run that began at .75 was far below after
    thirty steps."""
    many: float = 0.25
    """Share that is a note when it lasts: dynamic sampling then saves a quarter of the compute. In
    a small run with 30 % unsolvable prompts (share .33) it raised accuracy from .60 to .70."""
    worse: float = 0.2
    """Rise since the first readings that prompts as hard as before do not explain: the share of
    sixteen groups scatters by .1."""
    readings: int = 5
    """Fewest readings for any finding."""
    patience: int = 20
    """Readings before a share short of all groups counts, and before all of them is critical."""

    def examine(self, chart: Chart) -> RuleResult:
        """Take the recent share of groups that are wrong throughout."""
        name = _WRONG if chart.is_fresh(_WRONG) else _FLAT
        series = chart.series(name)
        if series.last < self.many / 2 or len(series) < self.readings:
            return None
        lasting = share_of(series, self.patience)
        severity = self._judge(chart, lasting, long=len(series) >= self.patience)
        if severity is None or (name == _FLAT and why_no_variance(chart) != "hard"):
            return None
        text = f"{lasting:.0%} of the groups are wrong throughout and carry no signal"
        evidence = cite_all(chart, name, outcome_of(chart))
        began = partial(since, series, lambda flat: flat >= self.many)
        opening = series.opening
        if opening and lasting - opening.level >= self.worse:
            text = f"{text}, {opening.level:.0%} at the start: the policy has got worse"
            if lasting < self.all_groups:
                severity = "info"  # the alarm is REW002's, whose name it is
            remedies = ("lower-learning-rate", "fewer-updates")
            return Sighting(severity, text, evidence, remedies, began)
        return Sighting(severity, text, evidence, since=began)

    def _judge(self, chart: Chart, share: float, *, long: bool) -> Severity | None:
        if share >= self.all_groups:
            return "critical" if long else "warning"
        if has_critic(chart):
            return None
        if not (long and share >= self.many) or has_improved(chart):
            return None
        return "warning" if share >= self.most else "info"

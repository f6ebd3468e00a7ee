"""DAT004."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.agent_health import course_of
from grpodoctor.rules.shared.health.run_health import RECENT, outcome_lost, outcome_metric
from grpodoctor.rules.shared.shapes.trend import outcome_has_risen, start_level
from grpodoctor.rules.shared.shapes.windows import in_steps
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_INVALID = "environment/invalid_action_rate"


class InvalidActions(Rule):
    """The environment rejects a large share of the policy's actions.

    What it sees:
        A share of invalid actions that has grown, or that is high and does not fall.

    Why it matters:
        An episode without valid actions has no outcome to learn from: all its responses get the
        same reward. A rising share is an early sign of a collapse, because a damaged policy loses
        the action format first.

    Evidence it needs:
        `environment/invalid_action_rate`.

    Remedies:
        Read ten rejected actions. Check the parser and the prompt's list of actions; if the share
        grew during training, return to a checkpoint before the onset.

    When it is wrong:
        A base model writes invalid actions at first and learns the format; the rule reports nothing
        while the share falls.

    References:
        verl-agent issue 188 (the share of valid actions and the score fall as responses grow);
        RAGEN, arXiv 2504.20073, for collapses of multi-turn agents.
    """

    code: ClassVar[str] = "DAT004"
    name: ClassVar[str] = "invalid-actions"
    condition: ClassVar[Condition] = "invalid-actions"
    summary: ClassVar[str] = "The environment rejects a large share of the actions."
    inputs: ClassVar[tuple[Need, ...]] = (_INVALID,)
    remedies: ClassVar[tuple[str, ...]] = (
        "recheck-reward",
        "lower-learning-rate",
        "easier-prompts",
    )
    references: ClassVar[tuple[str, ...]] = ("arXiv 2504.20073",)
    persistence: ClassVar[int] = 5
    clearance: ClassVar[int] = RECENT

    grown_share: float = 0.2
    """Share of invalid actions for a finding if it has grown: a fifth of all turns."""
    constant_share: float = 0.5
    """Share for a finding if it never fell: most turns are lost."""
    critical_share: float = 0.8
    """Share that is critical together with a lost reward; a public run collapsed at .94."""
    critical_loss: float = 0.35
    """Share of the best outcome that is lost; see REW002."""
    min_readings: int = 20
    """Readings before a constant share counts as not being unlearned."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look at the level, then at its course."""
        series = chart.series(_INVALID)
        if series.last < self.grown_share / 2:
            return None
        level, start = series.level(RECENT), start_level(series)
        if start is None or level < self.grown_share:
            return None
        course, steps = course_of(series), in_steps(series, RECENT)
        is_high = level >= self.constant_share and len(series) >= self.min_readings
        if course == "grown":
            text = f"Invalid actions rose from {start:.0%} to {level:.0%} of all actions {steps}."
        elif course == "constant" and is_high:
            text = (
                f"The environment rejects {level:.0%} of actions {steps}, "
                "and the share does not fall."
            )
        else:
            return None
        lost = outcome_lost(chart)
        is_critical = level >= self.critical_share and lost >= self.critical_loss
        severity: Severity = "critical" if is_critical else "warning"
        if outcome_has_risen(chart) and lost < self.critical_loss:
            severity = "info"
        return Sighting(severity, text, cite_all(chart, _INVALID, outcome_metric(chart)))

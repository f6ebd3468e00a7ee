"""DAT002."""

from __future__ import annotations

import math
import statistics
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.agent_health import Course, course_of, share_onset
from grpodoctor.rules.shared.health.run_health import RECENT, current_metric
from grpodoctor.rules.shared.shapes.trend import outcome_has_risen
from grpodoctor.rules.shared.shapes.windows import in_steps
from grpodoctor.runs.chart import Chart
from grpodoctor.support.arrays import np
from grpodoctor.vocabulary.conditions import Condition

_FAILURES = ("tools/failure_rate", "rollouts/error_rate")
_OUTCOME = ("reward/mean", "accuracy/train")


class ToolFailuresAsZeroReward(Rule):
    """Tools or environments fail, and the reward falls with them.

    What it sees:
        A share of failed tool calls, or of responses with an error, that stays high or grows. The
        finding is a warning if the reward falls whenever failures rise, or if most calls fail and
        neither reward nor accuracy has risen; otherwise it is `info`.

    Why it matters:
        A response whose tool server timed out is graded as incorrect, although the policy did
        nothing wrong. That is noise in the gradient; during an outage it affects every group. If
        the failures climb while the reward falls, and the policy has not changed before, a report
        names them as the cause of the fall.

    Evidence it needs:
        `tools/failure_rate` or `rollouts/error_rate`, and `reward/mean` or `accuracy/train`.

    Remedies:
        Drop responses whose environment failed, or sample them again. Count timeouts and errors of
        the server apart from calls that the policy wrote wrongly.

    When it is wrong:
        Calls that the policy writes incorrectly also fail, and deserve a reward of zero. If the
        share falls because the policy learns the syntax, the rule reports nothing.

    References:
        TRL documentation of `tools/failure_frequency`.
    """

    code: ClassVar[str] = "DAT002"
    name: ClassVar[str] = "tool-failures-as-zero-reward"
    condition: ClassVar[Condition] = "tool-failures"
    summary: ClassVar[str] = "Tools or environments fail, and the reward falls with them."
    inputs: ClassVar[tuple[Need, ...]] = (_FAILURES, _OUTCOME)
    remedies: ClassVar[tuple[str, ...]] = ("drop-failed-rollouts",)
    references: ClassVar[tuple[str, ...]] = ("huggingface.co/docs/trl/grpo_trainer",)
    persistence: ClassVar[int] = 3
    clearance: ClassVar[int] = 2 * RECENT

    min_share: float = 0.1
    """Share of failures. At a tenth, more than half of all groups of eight contain one."""
    grown_share: float = 0.3
    """Share of failures for a warning if it has grown."""
    constant_share: float = 0.5
    """Share of failures for a warning without growth. Programs that a policy writes fail in a
    fifth to a quarter of the calls in public runs, which is their own fault."""
    max_correlation: float = -0.5
    """Correlation of the changes of failures and reward from reading to reading. Changes have no
    common trend; twenty independent pairs stay above this with a probability of .99."""
    min_readings: int = 10
    """Minimum readings for a level; twice as many for a share that does not fall."""
    correlated_readings: int = 21
    """Readings for a correlation of twenty changes."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look at the level and the course of the failures, then at the reward."""
        name, outcome = current_metric(chart, _FAILURES), current_metric(chart, _OUTCOME)
        series = chart.series(name)
        if len(series) < self.min_readings or max(series.tail(RECENT)) < self.min_share:
            return None
        # The mean, since outages are short: the median of ten readings would miss them.
        level, course = statistics.fmean(series.tail(2 * RECENT)), course_of(series)
        if not level >= self.min_share or course == "unlearned":
            return None
        correlation = self._correlation(chart, name, outcome)
        noun = "tool calls" if name == _FAILURES[0] else "responses"
        text = f"{level:.0%} of {noun} fail {in_steps(series, 2 * RECENT)}"
        severity: Severity = "warning"
        if correlation <= self.max_correlation:
            text = f"{text}, and the reward falls with them (correlation {correlation:.2f})."
        elif len(series) < self.correlated_readings and course != "grown":
            return None
        elif outcome_has_risen(chart) is False and self._is_high(level, course):
            text = f"{text}, and count as zero reward unless they are dropped."
        else:
            severity, text = "info", f"{text}; the reward does not follow them."
        onset = partial(share_onset, series, level, self.min_share)
        return Sighting(severity, text, cite_all(chart, name, outcome), find_onset=onset)

    def _is_high(self, level: float, course: Course) -> bool:
        return level >= (self.grown_share if course == "grown" else self.constant_share)

    def _correlation(self, chart: Chart, failures: str, outcome: str) -> float:
        """Correlation of successive changes; 0 if there are too few or one is constant."""
        rewards = dict(chart.series(outcome))
        pairs = [(value, rewards[at]) for at, value in chart.series(failures) if at in rewards]
        if len(pairs) < self.correlated_readings:
            return 0.0
        changes = np.diff(np.array(pairs), axis=0)
        with np.errstate(all="ignore"):  # readings of 1e300 are damage, and give no correlation
            found = float(np.corrcoef(changes.T)[0, 1])
        return found if math.isfinite(found) else 0.0

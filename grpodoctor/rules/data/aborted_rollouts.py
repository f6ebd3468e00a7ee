"""DAT003."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.agent_health import share_onset
from grpodoctor.rules.shared.health.run_health import RECENT
from grpodoctor.rules.shared.shapes.windows import in_steps
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_ABORTED = "rollouts/aborted_rate"


class AbortedRollouts(Rule):
    """A share of the responses was aborted before it was complete.

    What it sees:
        The share of aborted responses over the latest readings.

    Why it matters:
        Sampling an aborted response has cost time, and the response is empty or cut. If it stays in
        the batch, it is graded as incorrect. If it is dropped, its group is smaller, and the
        remaining responses are not a fair sample, because the longest ones are missing most.

    Evidence it needs:
        `rollouts/aborted_rate`.

    Remedies:
        Look for the reason in the engine's log: timeouts, preemption for lack of cache, a weight
        sync that interrupts requests. Sample aborted responses again, or mask them.

    When it is wrong:
        Trainers that continue interrupted responses after a weight sync (partial rollouts) count
        each interruption as an abort although nothing is lost.

    References:
        verl documentation of `response/aborted_ratio`; AReaL, arXiv 2505.24298, section 4.1, for
        interruptible generation.
    """

    code: ClassVar[str] = "DAT003"
    name: ClassVar[str] = "aborted-rollouts"
    condition: ClassVar[Condition] = "lost-rollouts"
    summary: ClassVar[str] = "A share of the responses was aborted before it was complete."
    inputs: ClassVar[tuple[Need, ...]] = (_ABORTED,)
    remedies: ClassVar[tuple[str, ...]] = ("drop-failed-rollouts",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2505.24298",)
    persistence: ClassVar[int] = 5
    clearance: ClassVar[int] = RECENT

    info_share: float = 0.02
    """Share for `info`. Healthy public logs that have the key show 0."""
    warning_share: float = 0.1
    """Share for a warning: more than half of all groups of eight then have a response missing."""
    critical_share: float = 0.5
    """Share that is critical: most of the sampling is lost."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the recent level with the thresholds."""
        series = chart.series(_ABORTED)
        if series.last < self.info_share / 2:
            return None
        level = series.level(RECENT)
        if level < self.info_share:
            return None
        severity: Severity = "info"
        if level >= self.warning_share:
            severity = "critical" if level >= self.critical_share else "warning"
        text = (
            f"{level:.0%} of the responses were aborted before they were complete "
            f"{in_steps(series, RECENT)}."
        )
        onset = partial(share_onset, series, level, self.info_share)
        evidence = cite_all(chart, _ABORTED, "reward/mean")
        return Sighting(severity, text, evidence, find_onset=onset)

"""LEN005."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import (
    RECENT,
    is_solved,
    is_stuck,
    outcome_lost,
    outcome_metric,
    typical_share,
    zero_variance_metric,
)
from grpodoctor.rules.shared.health.whole_run import rises_over_run
from grpodoctor.rules.shared.shapes.trend import (
    began_half_way,
    outcome_has_risen,
    outcome_start,
    outcome_text,
)
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import Series
from grpodoctor.vocabulary.conditions import Condition

_LENGTH = "length/mean"


class LengthCollapse(Rule):
    """Responses have shrunk to a small share of their starting length.

    What it sees:
        A mean length below a quarter of its starting value. The finding is a warning if no outcome
        (reward or accuracy, in training or held out) has risen, critical if the outcome fell as
        well, and `info` if the reward rose while almost nothing of the responses is left. It stays
        a warning if the reward, in [0, 1], rose to a small share of success only and half of the
        groups or more have equal rewards: such responses earn credit for the form only.

    Why it matters:
        The policy has stopped reasoning and answers at once, or stops after a few tokens. A length
        penalty, a format reward, or a reward for ending early teaches this. Short responses also
        carry few tokens, so the gradient becomes noisy.

    Evidence it needs:
        `length/mean`. Optional: `reward/mean`, `accuracy/train`, held-out evaluation.

    Remedies:
        Read ten responses. Check the reward function on a short wrong response, weaken a length
        penalty, or return to a checkpoint before the onset.

    When it is wrong:
        A model that thinks far too long at first becomes shorter as it learns the format; its
        reward then rises, and the rule reports nothing until a tenth is left. A limit that was
        lowered, or a prompt mix with simpler tasks, also shortens responses.

    References:
        DAPO, arXiv 2503.14476, section 3.4; Kimi k1.5, arXiv 2501.12599, section 2.3.3, for length
        penalties that come too early.
    """

    code: ClassVar[str] = "LEN005"
    name: ClassVar[str] = "length-collapse"
    condition: ClassVar[Condition] = "length-loss"
    summary: ClassVar[str] = "Responses shrank to a small share of their starting length."
    inputs: ClassVar[tuple[Need, ...]] = (_LENGTH,)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward", "check-end-token")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476", "arXiv 2501.12599")
    persistence: ClassVar[int] = 5
    clearance: ClassVar[int] = 2 * RECENT
    judges_levels: ClassVar[bool] = True

    collapsed_share: float = 0.35
    """Share of the starting length. Healthy public runs that learn a format keep .45 to .7 of it;
    a run that collapsed onto a constant reward kept .27."""
    remaining_share: float = 0.1
    """Share of the starting length below which a rising reward still gets an `info`: fewer tokens
    than a tenth hold no reasoning."""
    low_outcome: float = 0.5
    """Outcome in [0, 1] below which most of the task is still to learn; see ENT001."""
    equal_share: float = 0.5
    """Share of groups with equal rewards from which nothing pushes the length back; see GRP002."""
    critical_loss: float = 0.35
    """Share of the best outcome whose loss makes the finding critical; see REW002."""
    min_start: float = 32
    """Tokens of the shortest starting length that is judged; sums and labels are shorter."""
    min_readings: int = 15
    """Minimum readings for a level that does not overlap with the first ones."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the length with its start, then look at the outcome."""
        series = chart.series(_LENGTH)
        start = self._start(series)
        if start is None or start < self.min_start or series.last > self.collapsed_share * start:
            return None
        level = series.level(RECENT)
        if len(series) < self.min_readings or level > self.collapsed_share * start:
            return None
        start = self._lasting_start(series, start, level)
        if level > self.collapsed_share * start:
            return None
        severity = self._severity(chart, level / start)
        if severity is None or is_solved(chart):
            return None
        text = (
            f"Mean length fell from {start:.0f} to {level:.0f} tokens while {outcome_text(chart)}."
        )
        evidence = cite_all(
            chart,
            _LENGTH,
            outcome_metric(chart),
            "entropy/mean",
            starts=outcome_start(chart) | {_LENGTH: start},
        )
        return Sighting(severity, text, evidence, find_onset=began_half_way(series, start))

    def _start(self, series: Series) -> float | None:
        """The longer of the two starting values: a run can collapse within its first ten steps."""
        levels = [each.level for each in (series.opening, series.baseline) if each is not None]
        return max(levels, default=None)

    def _lasting_start(self, series: Series, start: float, level: float) -> float:
        """The start that a collapse is judged by, in tokens.

        The first three readings may be of prompts with long answers. Then lengths half way back to
        them recur in the later half of the run, which they do not after a collapse.
        """
        baseline = series.baseline
        if baseline is None or baseline.level >= start:
            return start
        later = series.tail(len(series) // 2)
        return baseline.level if max(later) >= (start + level) / 2 else start

    def _severity(self, chart: Chart, share: float) -> Severity | None:
        if outcome_lost(chart) >= self.critical_loss:
            return "critical"
        has_risen = outcome_has_risen(chart)
        if has_risen is False and not is_stuck(chart):
            # Noise may hide from the levels what the whole run shows.
            has_risen = rises_over_run(chart.series(outcome_metric(chart) or ""))
        if has_risen is False or self._earns_form_alone(chart, share):
            return "warning"
        return "info" if has_risen is None or share <= self.remaining_share else None

    def _earns_form_alone(self, chart: Chart, share: float) -> bool:
        """Whether responses are nearly empty, little is solved, and many groups are equal."""
        outcome = chart.series(outcome_metric(chart) or "")
        groups = zero_variance_metric(chart)
        if share > self.remaining_share or groups is None or not len(outcome):
            return False
        is_low = outcome.level(RECENT) < self.low_outcome
        is_bounded = outcome.is_within(0, 1)
        equal = typical_share(chart.series(groups), 2 * RECENT)
        return is_low and is_bounded and equal >= self.equal_share

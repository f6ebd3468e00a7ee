"""GRP010."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import NOT_LOGGED, Need, Rule, RuleResult, Severity, Sighting, cite
from grpodoctor.rules.shared.health.run_health import RECENT
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import Series
from grpodoctor.vocabulary.conditions import Condition

_UNCENTRED = "groups/uncentred_rate"
_WEIGHTED, _SIZE = "advantage/token_weight", "groups/size"
_CENTRED = frozenset({"group", "centred", "leave_one_out"})
"""Estimators that subtract the mean of the group, or of its other responses."""


class AdvantagesNotCentred(Rule):
    """The advantages of some groups do not sum to zero, although the method subtracts their mean.

    What it sees:
        Groups with different rewards whose mean advantage is not zero, under an estimator that
        subtracts the mean of the group. Rounding stays far below the threshold.

    Why it matters:
        A group whose advantages are all positive makes each of its responses more likely, also the
        incorrect ones. If one data-parallel rank forgets the baseline, or a group is spread over
        two ranks and each subtracts the mean of its own part, the average gradient still points
        the right way. The reward then rises, more slowly and with more noise, and no curve shows
        why.

    Evidence it needs:
        `groups/uncentred_rate`, `groups/size` and the settings `advantage` and `group_size`.

    Remedies:
        Compare the advantages of one batch with its rewards on every rank.

    When it is wrong:
        A method that scales positive and negative advantages differently after the subtraction.
        The rule does not look at runs that reweight advantages by token, nor at parts of groups: it
        needs as many responses per group as the setting `group_size` says.

    References:
        DeepSeekMath, arXiv 2402.03300, section 4.1.
    """

    code: ClassVar[str] = "GRP010"
    name: ClassVar[str] = "advantages-not-centred"
    condition: ClassVar[Condition] = "wrong-advantages"
    summary: ClassVar[str] = "The advantages of some groups do not sum to zero."
    inputs: ClassVar[tuple[Need, ...]] = (_UNCENTRED, _SIZE)
    remedies: ClassVar[tuple[str, ...]] = ("check-advantages",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2402.03300",)
    clearance: ClassVar[int] = RECENT

    readings: int = 20
    """Latest batches that are judged."""
    min_batches: int = 3
    """Batches with such a group. One would be enough by arithmetic; three exclude a batch that was
    recorded while a setting changed."""
    all_groups: float = 0.9
    """Share of groups from which on no group is centred, so that the finding is critical: no rank
    compares the responses to a prompt."""

    def examine(self, chart: Chart) -> RuleResult:
        """Count the batches with such groups."""
        is_whole = chart.value(_SIZE) == chart.knobs.get("group_size")
        if chart.knobs.get("advantage") not in _CENTRED or not is_whole:
            return NOT_LOGGED
        if chart.is_fresh(_WEIGHTED):
            return None
        series = chart.series(_UNCENTRED)
        if not series.last > 0:
            return None
        shares = series.tail(self.readings)
        wrong = [share for share in shares if share > 0]
        if len(wrong) < self.min_batches:
            return None
        share = sum(wrong) / len(shares)
        text = (
            f"In {share:.0%} of the groups with different rewards, the advantages do not sum to 0."
        )
        severity: Severity = "critical" if share >= self.all_groups else "warning"
        onset = partial(_first_above_zero, series)
        return Sighting(severity, text, (cite(chart, _UNCENTRED, 0.0),), find_onset=onset)


def _first_above_zero(series: Series) -> int:
    return next(step for step, share in series if share > 0)

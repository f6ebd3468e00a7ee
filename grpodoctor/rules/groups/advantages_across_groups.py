"""GRP008."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import NOT_LOGGED, Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import RECENT
from grpodoctor.runs.chart import Chart
from grpodoctor.support.numbers import part_of
from grpodoctor.vocabulary.conditions import Condition

_ZERO = "advantage/zero_rate"
_EQUAL = "groups/zero_variance_rate"
_LEFT_OUT = "optimizer/left_out_rate"
_KL_IN_REWARD = "reward/kl_penalty"
_EXACT = frozenset({"group", "centred"})
"""Estimators of the bundled trainer that give exactly zero to groups with equal rewards. Elsewhere
the mean of equal rewards is rounded, so their advantages may be tiny instead of zero."""


class AdvantagesAcrossGroups(Rule):
    """Responses of groups with equal rewards have advantages, so advantages mix the prompts.

    What it sees:
        Batches with groups of equal rewards in which no token has an advantage of zero. A
        comparison within the group gives zero to every response of such a group.

    Why it matters:
        The responses are compared with those to other prompts: rows are out of order after a
        gather, group ids are wrong, or one rank computes advantages differently. The gradient then
        prefers responses to easy prompts to better responses.

    Evidence it needs:
        `advantage/zero_rate`, `groups/zero_variance_rate`, the setting `advantage`. Optional:
        `optimizer/left_out_rate`.

    Remedies:
        Compare the advantages of one batch with its rewards, row by row and group by group, at the
        place where the loss reads them.

    When it is wrong:
        An estimator that normalizes over the batch; the rule looks only at estimators that compare
        within groups. Filtered groups have no tokens in the loss, so the rule does not look at
        batches that leave responses out.

    References:
        DeepSeekMath, arXiv 2402.03300, section 4.1.
    """

    code: ClassVar[str] = "GRP008"
    name: ClassVar[str] = "advantages-across-groups"
    condition: ClassVar[Condition] = "wrong-advantages"
    summary: ClassVar[str] = "Responses of groups with equal rewards have advantages."
    inputs: ClassVar[tuple[Need, ...]] = (_ZERO, _EQUAL)
    remedies: ClassVar[tuple[str, ...]] = ("check-advantages",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2402.03300",)
    clearance: ClassVar[int] = RECENT

    readings: int = 20
    """Latest batches with groups of equal rewards."""
    min_batches: int = 3
    """Batches without an advantage of zero: one would be enough by arithmetic, and several exclude
    a batch whose log is incomplete."""

    def examine(self, chart: Chart) -> RuleResult:
        """Count the batches that contradict a comparison within groups."""
        is_exact = chart.manifest.framework == "grpodoctor" and len(chart.series(_ZERO)) > 0
        if not is_exact or chart.knobs.get("advantage") not in _EXACT:
            return NOT_LOGGED
        if chart.is_fresh(_KL_IN_REWARD):
            return None
        left_out = {step for step, share in chart.series(_LEFT_OUT) if share}
        zeros = {step: rate for step, rate in chart.series(_ZERO) if step not in left_out}
        silent = [zeros[step] for step, share in chart.series(_EQUAL) if share and step in zeros]
        silent = silent[-self.readings :]
        count = sum(share == 0 for share in silent)
        if count < self.min_batches:
            return None
        predicate = "have groups of equal rewards, but no advantage of 0."
        text = part_of(count, len(silent), "batches", predicate)
        return Sighting("critical", text, cite_all(chart, _ZERO, _EQUAL))

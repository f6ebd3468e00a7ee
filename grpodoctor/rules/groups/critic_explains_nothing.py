"""GRP006."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import (
    RECENT,
    is_solved,
    outcome_lost,
    outcome_metric,
)
from grpodoctor.rules.shared.health.whole_run import never_moved
from grpodoctor.rules.shared.shapes.trend import outcome_has_risen
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_EXPLAINED = "critic/explained_variance"
_VALUE = "critic/value_mean"


class CriticExplainsNothing(Rule):
    """The critic predicts the returns no better than a constant.

    What it sees:
        An explained variance whose level over many readings is at or below zero, after the time
        that a critic needs to learn. The finding is a warning if reward or accuracy has fallen or
        not risen, or if the critic's values never change, and `info` if the run learns
        nevertheless.

    Why it matters:
        The advantages are returns minus values. A critic that explains nothing adds its own error
        to every advantage: at an explained variance of -1 the noise doubles. Group-relative
        advantages would do better without a second model.

    Evidence it needs:
        `critic/explained_variance`. Optional: `critic/value_mean`.

    Remedies:
        Train the critic alone for some steps first, raise its learning rate, start it from the
        policy or a reward model; or use group-relative advantages.

    When it is wrong:
        If nearly all returns are equal, there is no variance to explain, and the value is noise.

    References:
        VAPO, arXiv 2504.05118, section 4.1 (pretraining of the critic); VinePPO, arXiv 2410.01679,
        for critics of language models that predict poorly.
    """

    code: ClassVar[str] = "GRP006"
    name: ClassVar[str] = "critic-explains-nothing"
    condition: ClassVar[Condition] = "useless-critic"
    summary: ClassVar[str] = "The critic predicts the returns no better than a constant."
    inputs: ClassVar[tuple[Need, ...]] = (_EXPLAINED,)
    remedies: ClassVar[tuple[str, ...]] = ("warm-up-critic",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2504.05118", "arXiv 2410.01679")
    persistence: ClassVar[int] = 3
    clearance: ClassVar[int] = 2 * RECENT

    max_explained: float = 0.0
    """Explained variance of a constant prediction."""
    constant_explained: float = 0.1
    """The same where the critic's values are known to be constant: what is logged is an estimate,
    which scatters around zero."""
    min_readings: int = 30
    """Readings that a critic may take to learn; a new value head starts at or below zero."""
    harmful: float = -0.5
    """Explained variance at which the critic adds half of the returns' variance as noise; a critic
    that is only slow stays near zero."""
    certain_readings: int = 100
    """Readings after which a critic near zero is not slow any more."""
    lost_share: float = 0.2
    """Share of the best outcome whose loss counts as harm."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the level with zero, then look at the outcome."""
        series = chart.series(_EXPLAINED)
        # Single readings of a useless critic scatter around zero; a critic that has learned leaves
        # it with its latest ten.
        if len(series) < self.min_readings:
            return None
        values = chart.series(_VALUE)
        is_constant = len(values) >= self.min_readings and never_moved(values)
        limit = self.constant_explained if is_constant else self.max_explained
        level = series.level(2 * RECENT)
        if max(level, series.level(RECENT)) > limit or is_solved(chart):
            return None
        evidence = cite_all(chart, _EXPLAINED, "critic/loss", outcome_metric(chart))
        if is_constant:
            text = (
                f"The critic's values are {values.last:.3g} at every step: no update reaches it, "
                "and the explained variance is 0."
            )
            return Sighting("warning", text, (*cite_all(chart, _VALUE), *evidence))
        text = f"The critic's explained variance is {level:.2g}"
        is_certain = level <= self.harmful or len(series) >= self.certain_readings
        has_failed = outcome_has_risen(chart) is False or outcome_lost(chart) >= self.lost_share
        if is_certain and has_failed:
            text = f"{text}; it adds noise to the advantages, and the reward has not risen."
            return Sighting("warning", text, evidence)
        return Sighting("info", f"{text}, no better than a constant.", evidence)

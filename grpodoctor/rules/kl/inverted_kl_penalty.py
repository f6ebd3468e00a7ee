"""KLD004."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import (
    current_metric,
    fall_text,
    outcome_lost,
    outcome_metric,
)
from grpodoctor.rules.shared.shapes.exponential_growth import exponential_growth
from grpodoctor.rules.shared.shapes.step_changes import step_changes
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_LOSS = "optimizer/loss"
_ADVANTAGE = "advantage/mean"
_LATEST = 5
"""Readings that make the level of a KL that grows within a few steps."""
_KLS = ("kl/reference/k3", "kl/reference/k2")
_OF_GROWTH = ("check-kl-sign", "lower-learning-rate")
_SIGNED = "kl/reference/k1"
"""An estimate whose single readings have both signs, but not its level where it is large."""


class InvertedKlPenalty(Rule):
    """The KL penalty seems to drive the policy away from the reference: it has the wrong sign.

    What it sees:
        The changes of the loss and of the KL divergence from step to step, over the latest
        readings. Their correlation is near -1. With a penalty it is positive: the loss contains the
        coefficient times the KL. A loss that is as close to minus the mean advantage shows nothing
        of the penalty.

        Or a KL divergence that grows exponentially, at one rate and faster than the fourth power of
        the step, in a run that has lost its outcome. A policy that diffuses or drifts moves away
        with the first or second power. Only a force that grows with the distance, such as a penalty
        of the wrong sign, makes it exponential. This is a warning: it does not show the force.

    Why it matters:
        The optimizer lowers the loss, so it drives the policy away from the reference, faster with
        a larger coefficient. The loss falls without bound and looks like progress.

    Evidence it needs:
        `kl/reference/k3` or `kl/reference/k2`; for its growth also `kl/reference/k1`. Optional:
        `optimizer/loss`, `advantage/mean`, the coefficient, and `reward/mean` or `accuracy/train`.

    Remedies:
        Check the sign of the penalty and the order of the two log-probabilities.

    When it is wrong:
        The loss of the policy gradient moves as well. The rule reports nothing unless the KL
        explains most of the changes of the loss, so it overlooks a small coefficient. Other
        feedback, such as an entropy bonus that outweighs the reward, also grows exponentially.

    References:
        DeepSeekMath, arXiv 2402.03300, Eq. 3 (the objective subtracts the penalty).
    """

    code: ClassVar[str] = "KLD004"
    name: ClassVar[str] = "inverted-kl-penalty"
    condition: ClassVar[Condition] = "wrong-settings"
    explains: ClassVar[tuple[Condition, ...]] = ("reference-drift", "reward-loss", "large-kl")
    summary: ClassVar[str] = "The KL penalty seems to drive the policy away from the reference."
    inputs: ClassVar[tuple[Need, ...]] = ((*_KLS, _SIGNED),)
    remedies: ClassVar[tuple[str, ...]] = ("check-kl-sign",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2402.03300",)
    persistence: ClassVar[int] = 6
    clearance: ClassVar[int] = 10
    judges_levels: ClassVar[bool] = True

    readings: int = 30
    """Latest readings that are compared."""
    max_correlation: float = -0.8
    """Correlation of the changes: the KL then explains two thirds of their variance. Inverted
    penalties showed -.92 and -1.0, healthy runs -.38 to .98."""
    min_slope: float = 0.25
    """Slope as a multiple of the coefficient, where that is known."""
    min_grown_kl: float = 0.4
    """Nats per token of a KL that grows exponentially; see `min_kl_if_lost` of KLD002."""
    lost_share: float = 0.2
    """Share of the best outcome whose loss counts as harm, as in OPT006."""

    def examine(self, chart: Chart) -> RuleResult:
        """Correlate the changes of the loss with those of the KL, then look at its growth."""
        return self._by_loss(chart) or self._by_growth(chart)

    def _by_growth(self, chart: Chart) -> Sighting | None:
        name = current_metric(chart, (*_KLS, _SIGNED))
        series = chart.series(name)
        if series.last < self.min_grown_kl or self._has_no_penalty(chart):
            return None
        if series.level(_LATEST) < self.min_grown_kl or outcome_lost(chart) < self.lost_share:
            return None
        growth = exponential_growth(series)
        if growth is None:
            return None
        level = series.level(_LATEST)
        text = (
            f"The KL to the reference doubles every {growth.doubling:.2g} steps, to {level:.2g} "
            f"nats, and {fall_text(chart)}."
        )
        evidence = cite_all(chart, name, outcome_metric(chart))
        return Sighting("warning", text, evidence, _OF_GROWTH, find_onset=lambda: growth.since)

    def _has_no_penalty(self, chart: Chart) -> bool:
        return chart.knobs.get("kl_coefficient") == 0

    def _by_loss(self, chart: Chart) -> Sighting | None:
        if not chart.is_fresh(_LOSS) or not any(map(chart.is_fresh, _KLS)):
            return None
        name = current_metric(chart, _KLS)
        found = step_changes(chart.series(name), chart.series(_LOSS), self.readings)
        if found is None:
            return None
        min_slope = self.min_slope * self._coefficient(chart)
        if found.correlation > self.max_correlation or -found.slope < min_slope:
            return None
        if self._follows_advantages(chart):
            return None
        text = (
            f"The loss falls by {-found.slope:.2g} per nat of KL "
            f"(correlation {found.correlation:.2f}): the penalty has the wrong sign."
        )
        first = chart.series(name).first_step
        return Sighting("critical", text, cite_all(chart, _LOSS, name), find_onset=lambda: first)

    def _follows_advantages(self, chart: Chart) -> bool:
        """Whether the loss is minus the mean advantage, which it is at importance ratios of 1.

        Advantages without a baseline, or only positive ones, have a mean that moves with the
        reward, as the KL does.
        """
        if not chart.is_fresh(_ADVANTAGE):
            return False
        advantages = chart.series(_ADVANTAGE)
        found = step_changes(advantages, chart.series(_LOSS), self.readings)
        return found is not None and found.correlation <= self.max_correlation

    def _coefficient(self, chart: Chart) -> float:
        coefficient = chart.knobs.get("kl_coefficient")
        return float(coefficient) if isinstance(coefficient, int | float) else 0.0

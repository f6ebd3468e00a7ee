"""KLD004."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.run_health import current_metric
from grpodoctor.rules.shared.step_changes import step_changes
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_LOSS = "optimizer/loss"
_KLS = ("kl/reference/k3", "kl/reference/k2")


class InvertedKlPenalty(Rule):
    """The loss falls when the KL to the reference rises, so the KL penalty has the wrong sign.

    What it sees:
        The changes of the loss and of the KL divergence from step to step, over the latest
        readings. Their correlation is near -1. With a penalty it is positive: the loss contains the
        coefficient times the KL.

    Why it matters:
        The optimizer lowers the loss, so it drives the policy away from the reference, faster with
        a larger coefficient. The loss falls without bound and looks like progress.

    Evidence it needs:
        `optimizer/loss`, and `kl/reference/k3` or `kl/reference/k2`. Optional: the coefficient.

    Remedies:
        Check the sign of the penalty and the order of the two log-probabilities.

    When it is wrong:
        The loss of the policy gradient moves as well. The rule reports nothing unless the KL
        explains most of the changes of the loss, so it overlooks a small coefficient.

    References:
        DeepSeekMath, arXiv 2402.03300, Eq. 3 (the objective subtracts the penalty).
    """

    code: ClassVar[str] = "KLD004"
    name: ClassVar[str] = "inverted-kl-penalty"
    condition: ClassVar[Condition] = "wrong-settings"
    explains: ClassVar[tuple[Condition, ...]] = ("reference-drift", "reward-loss", "large-kl")
    summary: ClassVar[str] = "The loss falls when the KL to the reference rises."
    inputs: ClassVar[tuple[Need, ...]] = (_LOSS, _KLS)
    remedies: ClassVar[tuple[str, ...]] = ("check-kl-sign",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2402.03300",)
    persistence: ClassVar[int] = 3
    clearance: ClassVar[int] = 10
    cadence: ClassVar[int] = 5

    readings: int = 30
    """Latest readings that are compared."""
    max_correlation: float = -0.8
    """Correlation of the changes: the KL then explains two thirds of their variance. Inverted
    penalties showed -.92 and -1.0, healthy runs -.38 to .98."""
    min_slope: float = 0.25
    """Slope as a multiple of the coefficient, where that is known."""

    def examine(self, chart: Chart) -> RuleResult:
        """Correlate the changes of the loss with those of the KL."""
        name = current_metric(chart, _KLS)
        found = step_changes(chart.series(name), chart.series(_LOSS), self.readings)
        if found is None:
            return None
        min_slope = self.min_slope * self._coefficient(chart)
        if found.correlation > self.max_correlation or -found.slope < min_slope:
            return None
        text = (
            f"The loss falls by {-found.slope:.2g} per nat of KL "
            f"(correlation {found.correlation:.2f}): the penalty has the wrong sign."
        )
        first = chart.series(name).first_step
        return Sighting("critical", text, cite_all(chart, _LOSS, name), find_onset=lambda: first)

    def _coefficient(self, chart: Chart) -> float:
        coefficient = chart.knobs.get("kl_coefficient")
        return float(coefficient) if isinstance(coefficient, int | float) else 0.0

"""MOE006."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import RECENT, outcome_metric
from grpodoctor.rules.shared.shapes.trend import outcome_has_risen, outcome_text
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_AUXILIARY = "experts/auxiliary_loss"
_GRADIENT = "optimizer/grad_norm"


class RouterAuxiliaryLoss(Rule):
    """The router's load-balancing loss of pretraining is still part of the RL loss.

    What it sees:
        An auxiliary loss above zero. The finding is `info` while the run learns, and a warning if
        no outcome has risen.

    Why it matters:
        Trainers take the coefficient from the model's configuration, which still has the value of
        pretraining. The gradient of this loss does not depend on the reward. The router keeps
        moving even where groups have no variance, the experts of sampler and learner diverge, and
        the gradient looks healthy although nothing is learned.

    Evidence it needs:
        `experts/auxiliary_loss`.

    Remedies:
        Set the coefficient of the auxiliary loss to zero for RL, and watch the load of the experts
        (MOE003).

    When it is wrong:
        Long runs that balance their experts on purpose log it as well; compare it with the load.

    References:
        TRL 1.16, `router_aux_loss_coef`, which takes the model's value; NeMo RL recipes, which set
        it to zero.
    """

    code: ClassVar[str] = "MOE006"
    name: ClassVar[str] = "router-auxiliary-loss"
    condition: ClassVar[Condition] = "wrong-settings"
    judged_by_outcome: ClassVar[bool] = True
    summary: ClassVar[str] = "The router's load-balancing loss is part of the RL loss."
    inputs: ClassVar[tuple[Need, ...]] = (_AUXILIARY,)
    remedies: ClassVar[tuple[str, ...]] = ("router-loss-off",)
    references: ClassVar[tuple[str, ...]] = ("TRL 1.16, GRPOConfig.router_aux_loss_coef",)
    persistence: ClassVar[int] = 2
    clearance: ClassVar[int] = 4
    cadence: ClassVar[int] = 5

    min_readings: int = 30
    """Readings without a rise that make a warning; learning shows within twenty in small runs."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look for an auxiliary loss, then at the outcome."""
        series = chart.series(_AUXILIARY)
        if not series.last > 0:
            return None
        text = f"The router's auxiliary loss adds {series.level(RECENT):.2g} to the loss"
        evidence = cite_all(chart, _AUXILIARY, _GRADIENT, outcome_metric(chart))
        if len(series) >= self.min_readings and outcome_has_risen(chart) is False:
            outcome = outcome_text(chart)
            return Sighting("warning", f"{text}; {outcome}.", evidence)
        return Sighting("info", f"{text}.", evidence)

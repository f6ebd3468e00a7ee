"""No auxiliary router loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class RouterLossOff(Remedy):
    """Set the weight of the routers' auxiliary loss to 0.

    What it does:
        The auxiliary loss of pretraining balances the experts' load. Models carry its weight in
        their config, and trainers that build the model from it add the loss to RL, where it
        competes with the reward: it changes routes even if every advantage is zero.

    When it applies:
        A mixture of experts, a gradient although all advantages are 0, or a logged auxiliary loss,
        while the load is even.

    What it costs:
        Nothing keeps routers balanced any more; watch the load of the experts.

    What it overlaps:
        `balance-experts`, which does the opposite when the load is uneven.

    How it is judged:
        By a person, after the restart: the gradient is 0 when all advantages are 0.

    References:
        NeMo RL's Qwen3.5 recipe (router_aux_loss_coef 0); TRL 1.16 (router_aux_loss_coef takes the
        model's value).
    """

    id = "router-loss-off"
    title = "Switch off the routers' auxiliary loss"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("experts/churn_update", "down")
    more_targets = (Criterion("reward/mean", "up"),)
    paper = "NeMo RL, Qwen3.5 recipe"
    how = (
        "Restart with an auxiliary loss of 0, and check that the loss is 0 in a batch whose "
        "advantages are all 0."
    )
    restart_with: ClassVar[Mapping[str, Setting]] = {"router_loss": 0.0}

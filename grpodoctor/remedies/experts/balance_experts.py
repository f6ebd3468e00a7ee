"""Balanced or frozen routers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class BalanceExperts(Remedy):
    """Resume from a checkpoint with an even expert load, with balanced or frozen routers.

    What it does:
        Nothing in a policy gradient loss keeps a router from sending more and more tokens to a few
        experts. An auxiliary loss or a bias on the router's logits does. Frozen routers cannot
        change at all. Many trainers switch off the auxiliary loss of pretraining.

    When it applies:
        A mixture of experts whose busiest expert takes more and more tokens.

    What it costs:
        An auxiliary loss also affects the policy: keep its weight at 0.001. Frozen routers can no
        longer adapt to the task.

    What it overlaps:
        A lower learning rate, which slows the same change.

    How it is judged:
        By a person, after the restart: the busiest expert's share stays at its starting value.

    References:
        Switch Transformers, arXiv 2101.03961, section 2.2 (the auxiliary loss);
        Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-Experts, arXiv 2408.15664 (the
        bias).
    """

    id = "balance-experts"
    title = "Balance or freeze the routers"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("experts/load_max_over_mean", "toward-baseline")
    more_targets = (Criterion("experts/router_entropy", "toward-baseline"),)
    paper = "Switch Transformers, arXiv 2101.03961"
    alternatives = ("router-loss-off",)
    how = (
        "Restart from a checkpoint before the load became uneven, with an auxiliary loss of about "
        "0.001 (transformers: output_router_logits and router_aux_loss_coef; Megatron: "
        "--moe-router-load-balancing-type and --moe-aux-loss-coeff, or "
        "--moe-router-enable-expert-bias), or with frozen router weights."
    )

    restart_with: ClassVar[Mapping[str, Setting]] = {"balanced_routers": 0.001}

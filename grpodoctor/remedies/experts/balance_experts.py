"""A load that is spread over the experts again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Remedy, Watch
from grpodoctor.vocabulary.knobs import Setting


class BalanceExperts(Remedy):
    """Go back to a checkpoint with a spread load, and balance or freeze the routers from there.

    What it does:
        Nothing in the loss of a policy gradient keeps a router from sending more and more tokens to
        a few experts. An auxiliary loss or a bias on its logits does; frozen routers cannot move at
        all. Many trainers switch the auxiliary loss of pretraining off.

    What it costs:
        An auxiliary loss pulls at the policy as well: keep it at a thousandth. Frozen routers can
        no longer adapt to the task.

    What it overlaps:
        A lower learning rate, which slows the same movement.

    How it is judged:
        By a person, after the restart: the busiest expert's share stays where it was at the start.

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
    target = Watch("experts/load_max_over_mean", "toward-baseline")
    also = (Watch("experts/router_entropy", "toward-baseline"),)
    paper = "Switch Transformers, arXiv 2101.03961"
    how = (
        "Restart from a checkpoint before the load concentrated, with an auxiliary loss of about "
        "0.001 (transformers: output_router_logits and router_aux_loss_coef; Megatron: "
        "--moe-router-load-balancing-type and --moe-aux-loss-coeff, or "
        "--moe-router-enable-expert-bias), or with the routers' weights frozen."
    )

    restart_with: ClassVar[Mapping[str, Setting]] = {"balanced_routers": 0.001}

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:  # noqa: ARG002 - a person acts
        """Nothing: no knob stands for it."""
        return {}

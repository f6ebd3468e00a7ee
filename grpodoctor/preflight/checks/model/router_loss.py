"""MOE101."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck

_EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_WEIGHT_KEYS = ("router_aux_loss_coef", "aux_loss_alpha")


class RouterLossEnabled(Check):
    """The model adds the routers' auxiliary loss to the RL loss.

    What it sees:
        A mixture of experts whose config.json sets `output_router_logits` and a weight above zero
        for the auxiliary loss. transformers then adds the loss to every loss it computes, and
        trainers that read `output_router_logits`, such as TRL, add it to theirs.

    Why it matters:
        The auxiliary loss balances the experts during pretraining. In RL it adds a gradient even if
        all advantages are zero, and it moves the routes away from the sampler's.

    What to do:
        Set `output_router_logits` to false, or the weight to zero, in the config that the trainer
        loads.

    When it is wrong:
        A small weight can keep experts from collapsing in long runs. Then measure the load of the
        experts and keep the weight below 0.001.

    References:
        transformers' MoE models: the loss is added only if `output_router_logits` is set.
    """

    code: ClassVar[str] = "MOE101"
    name: ClassVar[str] = "router-loss-enabled"
    summary: ClassVar[str] = "The model adds the routers' auxiliary loss to the RL loss."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Read the model's config."""
        experts = next((n for key in _EXPERT_KEYS if (n := context.config_count(key))), 1)
        if experts < 2:
            return SkippedCheck("the model is not a mixture of experts")
        weight = next((w for key in _WEIGHT_KEYS if (w := _weight(context, key))), 0.0)
        if context.config_value("output_router_logits") is not True or not weight:
            return ()
        return (
            CheckFinding(
                "warning",
                f"The routers' auxiliary loss is enabled with a weight of {weight:g}.",
                ("Set output_router_logits to false in the config that the trainer loads.",),
                (f"{experts} experts",),
                {"weight": weight},
            ),
        )


def _weight(context: PreflightContext, key: str) -> float:
    value = context.config_value(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0

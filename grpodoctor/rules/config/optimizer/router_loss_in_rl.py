"""CFG054."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class RouterLossInRl(ConfigRule):
    """The routers' auxiliary loss competes with the reward.

    What it sees:
        An auxiliary loss of the routers with a weight of 0.01 or more.

    Why it matters:
        The auxiliary loss balances the experts during pretraining. In RL it adds a gradient even if
        all advantages are 0, and it moves the routes away from the sampler's.

    Evidence it needs:
        Settings: `router_loss`.

    Remedies:
        Set it to 0 (`router-loss-off`), or to 0.001 if the load becomes uneven.

    When it is wrong:
        A run whose experts collapsed without the loss.

    References:
        NeMo RL's Qwen3.5 recipe (0); Switch Transformers, arXiv 2101.03961 (0.01 in pretraining).
    """

    code = "CFG054"
    name = "router-loss-in-rl"
    explains = ("expert-instability",)
    summary = "The routers' auxiliary loss has its pretraining weight."
    needs = ("router_loss",)
    remedies = ("router-loss-off",)
    references = ("arXiv 2101.03961",)

    largest: float = 0.01
    """The weight in pretraining; 0.001 is what `balance-experts` sets."""

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Compare the weight with that of pretraining."""
        weight = settings.amount("router_loss")
        if weight < self.largest:
            return None
        return ConfigFault(
            "warning", f"The routers' auxiliary loss has a weight of {weight:g} in RL."
        )

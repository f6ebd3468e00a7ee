"""CFG043."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class LargeKlCoefficient(ConfigRule):
    """The KL penalty outweighs the reward.

    What it sees:
        A KL coefficient of 0.5 or more.

    Why it matters:
        Published coefficients are 0 to 0.05. With rewards of 0 and 1, a coefficient of 0.5 makes a
        drift of half a nat cost a quarter of the reward, so the policy hardly moves.

    Evidence it needs:
        Settings: `kl_coefficient`.

    Remedies:
        Start at 0.001 to 0.04 (`smaller-kl-penalty`), or without a penalty.

    When it is wrong:
        Rewards on a scale of tens, or a penalty for a short warm-up.

    References:
        DeepSeekMath, arXiv 2402.03300 (0.04); DeepSeek-R1, arXiv 2501.12948 (0.001); DAPO, arXiv
        2503.14476 (0).
    """

    code = "CFG043"
    name = "large-kl-coefficient"
    explains = ("plateau",)
    summary = "The KL coefficient is far above published values."
    needs = ("kl_coefficient",)
    remedies = ("smaller-kl-penalty",)
    references = ("arXiv 2402.03300", "arXiv 2501.12948")

    largest: float = 0.5
    """Ten times the largest published coefficient, 0.05."""

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Compare the coefficient with published ones."""
        coefficient = settings.amount("kl_coefficient")
        if coefficient < self.largest:
            return None
        text = f"The KL coefficient is {coefficient:g}; published runs use at most 0.05."
        return ConfigFault("warning", text)

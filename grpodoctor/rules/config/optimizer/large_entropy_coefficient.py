"""CFG056."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class LargeEntropyCoefficient(ConfigRule):
    """The entropy bonus outweighs the reward.

    What it sees:
        An entropy coefficient of 0.1 or more.

    Why it matters:
        The loss of the policy gradient is near 0, because advantages are centered. With an entropy
        of half a nat, a bonus of 0.1 is a constant push toward random tokens, and the policy keeps
        its entropy instead of learning from the reward.

    Evidence it needs:
        Settings: `entropy_coefficient`.

    Remedies:
        Start at 0.001 (`smaller-entropy-bonus`), or without a bonus.

    When it is wrong:
        Advantages on a scale of tens, or a coefficient that is annealed within a few steps.

    References:
        Proximal Policy Optimization, arXiv 1707.06347, section 5 (0.01); Skywork-OR1, arXiv
        2505.22312 (an adaptive coefficient, because a fixed one is sensitive).
    """

    code = "CFG056"
    name = "large-entropy-coefficient"
    explains = ("entropy-rise", "plateau", "held-out-loss")
    summary = "The entropy coefficient is far above published values."
    needs = ("entropy_coefficient",)
    remedies = ("smaller-entropy-bonus",)
    references = ("arXiv 1707.06347", "arXiv 2505.22312")

    largest: float = 0.1
    """Ten times the largest common coefficient, 0.01."""

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Compare the coefficient with common ones."""
        coefficient = settings.amount("entropy_coefficient")
        if coefficient < self.largest:
            return None
        text = f"The entropy coefficient is {coefficient:g}; common values are at most 0.01."
        return ConfigFault("warning", text)

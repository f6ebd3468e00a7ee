"""CFG053."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class EntropyCoefficientSign(ConfigRule):
    """The entropy coefficient has the wrong sign.

    What it sees:
        An entropy coefficient below 0.

    Why it matters:
        In all supported frameworks a positive coefficient rewards entropy. A negative one drives
        entropy to zero on purpose, which ends exploration.

    Evidence it needs:
        Settings: `entropy_coefficient`.

    Remedies:
        Use a positive coefficient of about 0.001, or 0.

    When it is wrong:
        Some papers minimize entropy on purpose.

    References:
        The Entropy Mechanism of RL for Reasoning Language Models, arXiv 2505.22617.
    """

    code = "CFG053"
    name = "entropy-coefficient-sign"
    explains = ("entropy-loss",)
    summary = "The entropy coefficient penalizes entropy."
    needs = ("entropy_coefficient",)
    remedies = ("entropy-bonus", "clip-higher")
    references = ("arXiv 2505.22617",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look at the sign."""
        coefficient = settings.amount("entropy_coefficient")
        if coefficient >= 0:
            return None
        text = f"The entropy coefficient of {coefficient:g} penalizes entropy; a bonus is positive."
        return ConfigFault("warning", text)

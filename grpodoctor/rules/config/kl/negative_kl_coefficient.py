"""CFG044."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings
from grpodoctor.vocabulary.conditions import Condition


@dataclass(frozen=True)
class NegativeKlCoefficient(ConfigRule):
    """The KL coefficient has the wrong sign.

    What it sees:
        A KL coefficient below 0.

    Why it matters:
        In all supported frameworks a positive coefficient keeps the policy near the reference. A
        negative one rewards every step away from it, without a bound.

    Evidence it needs:
        Settings: `kl_coefficient`.

    Remedies:
        Use a coefficient of 0.001 to 0.04, or none.

    When it is wrong:
        Unlearning or repulsion from a reference, on purpose.

    References:
        DeepSeekMath, arXiv 2402.03300, equation 3.
    """

    code: ClassVar[str] = "CFG044"
    name: ClassVar[str] = "negative-kl-coefficient"
    explains: ClassVar[tuple[Condition, ...]] = ("reference-drift", "large-kl", "reward-loss")
    summary: ClassVar[str] = "The KL coefficient rewards distance from the reference."
    condition: ClassVar[Condition] = "wrong-settings"
    needs: ClassVar[tuple[str, ...]] = ("kl_coefficient",)
    remedies: ClassVar[tuple[str, ...]] = ("check-kl-sign",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2402.03300",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look at the sign."""
        coefficient = settings.number("kl_coefficient") or 0.0
        if coefficient >= 0:
            return None
        text = f"The KL coefficient of {coefficient:g} rewards distance from the reference."
        return ConfigFault("warning", text)

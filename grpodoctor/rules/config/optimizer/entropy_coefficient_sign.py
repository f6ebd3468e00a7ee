"""CFG053."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings
from grpodoctor.vocabulary.conditions import Condition


@dataclass(frozen=True)
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
        Use a positive coefficient of about 0.001, or none.

    When it is wrong:
        Entropy minimization, which some papers use on purpose.

    References:
        The Entropy Mechanism of RL for Reasoning Language Models, arXiv 2505.22617.
    """

    code: ClassVar[str] = "CFG053"
    name: ClassVar[str] = "entropy-coefficient-sign"
    explains: ClassVar[tuple[Condition, ...]] = ("entropy-loss",)
    summary: ClassVar[str] = "The entropy coefficient punishes entropy."
    condition: ClassVar[Condition] = "wrong-settings"
    needs: ClassVar[tuple[str, ...]] = ("entropy_coefficient",)
    remedies: ClassVar[tuple[str, ...]] = ("entropy-bonus", "clip-higher")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2505.22617",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look at the sign."""
        coefficient = settings.number("entropy_coefficient") or 0.0
        if coefficient >= 0:
            return None
        text = f"The entropy coefficient of {coefficient:g} punishes entropy; a bonus is positive."
        return ConfigFault("warning", text)

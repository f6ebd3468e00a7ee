"""CFG040."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings
from grpodoctor.vocabulary.conditions import Condition


@dataclass(frozen=True)
class KlWithoutReference(ConfigRule):
    """A KL penalty has no reference model.

    What it sees:
        A KL coefficient above 0 although the config loads no reference model.

    Why it matters:
        Without a reference the penalty is 0, or the run fails at its first step. The curve of a KL
        that is always 0 looks like a policy that stays close.

    Evidence it needs:
        Settings: `kl_coefficient`, `reference_loaded`.

    Remedies:
        Load the reference (open-instruct: --load_ref_policy True; slime: --ref-load), or set the
        coefficient to 0.

    When it is wrong:
        LoRA runs take the base model without adapters as the reference.

    References:
        DeepSeekMath, arXiv 2402.03300, section 4.1.
    """

    code: ClassVar[str] = "CFG040"
    name: ClassVar[str] = "kl-without-reference"
    explains: ClassVar[tuple[Condition, ...]] = ("reference-drift",)
    summary: ClassVar[str] = "A KL penalty is set, and no reference model is loaded."
    condition: ClassVar[Condition] = "wrong-settings"
    needs: ClassVar[tuple[str, ...]] = ("kl_coefficient", "reference_loaded")
    remedies: ClassVar[tuple[str, ...]] = ("kl-penalty",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2402.03300",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for the reference."""
        coefficient = settings.number("kl_coefficient") or 0.0
        if coefficient <= 0 or settings.get("reference_loaded") is not False:
            return None
        text = f"The KL coefficient is {coefficient:g}, and no reference model is loaded."
        return ConfigFault("warning", text)

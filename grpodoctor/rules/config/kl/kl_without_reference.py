"""CFG040."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class KlWithoutReference(ConfigRule):
    """A KL penalty is set, but no reference model is loaded.

    What it sees:
        A KL coefficient above 0 although the config loads no reference model.

    Why it matters:
        Without a reference the penalty is 0, or the run fails at its first step. A KL that is
        always 0 looks like a policy that stays close to its reference.

    Evidence it needs:
        Settings: `kl_coefficient`, `reference_loaded`.

    Remedies:
        Load the reference (open-instruct: --load_ref_policy True; slime: --ref-load), or set the
        coefficient to 0.

    When it is wrong:
        LoRA runs use the base model without adapters as the reference.

    References:
        DeepSeekMath, arXiv 2402.03300, section 4.1.
    """

    code = "CFG040"
    name = "kl-without-reference"
    explains = ("reference-drift",)
    summary = "A KL penalty is set, but no reference model is loaded."
    needs = ("kl_coefficient", "reference_loaded")
    remedies = ("kl-penalty",)
    references = ("arXiv 2402.03300",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for the reference."""
        coefficient = settings.amount("kl_coefficient")
        if coefficient <= 0 or settings.get("reference_loaded") is not False:
            return None
        text = f"The KL coefficient is {coefficient:g}, and no reference model is loaded."
        return ConfigFault("warning", text)

"""CFG004."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class DppoWithStd(ConfigRule):
    """DPPO is combined with advantages that are divided by the standard deviation.

    What it sees:
        A DPPO loss with the advantage `group`, which divides by the group's standard deviation.

    Why it matters:
        DPPO's recipe centers the advantages and does not divide them. Dividing by a small standard
        deviation gives the largest advantages to prompts that are nearly always or nearly never
        solved. Their tokens are the ones that DPPO's mask must stop.

    Evidence it needs:
        Settings: `loss`, `advantage`.

    Remedies:
        Switch off the division by the standard deviation (`dppo`).

    When it is wrong:
        The combination may train well; it is not the published one.

    References:
        Rethinking the Trust Region in LLM Reinforcement Learning, arXiv 2602.04879.
    """

    code = "CFG004"
    name = "dppo-with-std"
    summary = "DPPO is combined with advantages divided by the group's std."
    condition = "wrong-advantages"
    needs = ("loss", "advantage")
    remedies = ("dppo",)
    references = ("arXiv 2602.04879",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for standardized advantages."""
        is_dppo = str(settings.get("loss")).startswith(("dppo_", "ipo"))
        if not is_dppo or not settings.is_one_of("advantage", "group"):
            return None
        return ConfigFault(
            "warning", "DPPO only centers advantages; here they are divided by the group's std."
        )

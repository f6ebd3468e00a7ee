"""CFG004."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class DppoWithStd(ConfigRule):
    """DPPO is combined with advantages that are divided by the standard deviation.

    What it sees:
        A DPPO loss and advantages of the kind `group`.

    Why it matters:
        DPPO's recipe centers advantages only. Dividing by a small standard deviation gives prompts
        that are nearly always or never solved the largest advantages, and with them the tokens that
        the mask must stop.

    Evidence it needs:
        Settings: `loss`, `advantage`.

    Remedies:
        Switch the scaling off (`dppo`).

    When it is wrong:
        The combination runs; it is not what was published.

    References:
        Rethinking the Trust Region in LLM Reinforcement Learning, arXiv 2602.04879.
    """

    code = "CFG004"
    name = "dppo-with-std"
    summary = "DPPO gets advantages that are divided by the group's std."
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
            "warning", "DPPO centers advantages; these are divided by the group's std."
        )

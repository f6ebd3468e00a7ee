"""CFG002."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class DrGrpoWithStd(ConfigRule):
    """Only half of Dr. GRPO is set: the constant denominator, with divided advantages.

    What it sees:
        A constant denominator of the loss, and advantages that are divided by the group's standard
        deviation.

    Why it matters:
        Dr. GRPO removes two biases. The constant denominator removes the length bias; advantages
        without division by the standard deviation remove the difficulty bias. In TRL,
        loss_type=dr_grpo changes the denominator only; in verl, norm_adv_by_std_in_grpo changes the
        advantages only.

    Evidence it needs:
        Settings: `aggregation`, `advantage`.

    Remedies:
        Switch off the division by the standard deviation as well (`dr-grpo`).

    When it is wrong:
        The combination is valid if it is intended: it removes the length bias only.

    References:
        Understanding R1-Zero-Like Training, arXiv 2503.20783, section 3.
    """

    code = "CFG002"
    name = "dr-grpo-with-std"
    summary = "Dr. GRPO's denominator is combined with advantages divided by the group's std."
    needs = ("aggregation", "advantage")
    remedies = ("dr-grpo",)
    references = ("arXiv 2503.20783",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for the denominator without the advantages."""
        is_half = settings.is_one_of("aggregation", "constant") and settings.is_one_of(
            "advantage", "group"
        )
        text = "The denominator is Dr. GRPO's, but advantages are still divided by the group's std."
        return ConfigFault("warning", text) if is_half else None

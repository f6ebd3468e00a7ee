"""CFG007."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class PaddedDenominator(ConfigRule):
    """The loss is divided by the padded batch width instead of a constant.

    What it sees:
        verl's seq-mean-token-sum-norm without loss_scale_factor.

    Why it matters:
        Without the factor, the loss is divided by the width of the batch, which is its longest
        response. The size of an update then changes from batch to batch, and one long response
        shrinks the update of all others.

    Evidence it needs:
        Settings: `padded_denominator`.

    Remedies:
        Set loss_scale_factor to the maximum response length (`dr-grpo`).

    When it is wrong:
        If every batch is padded to the same width, the denominator is constant anyway.

    References:
        Understanding R1-Zero-Like Training, arXiv 2503.20783; verl, `agg_loss`.
    """

    code = "CFG007"
    name = "padded-denominator"
    explains = ("length-growth",)
    summary = "The loss is divided by the padded batch width instead of a constant."
    needs = ("padded_denominator",)
    remedies = ("dr-grpo",)
    references = ("arXiv 2503.20783",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for the missing factor."""
        if settings.get("padded_denominator") is not True:
            return None
        text = "seq-mean-token-sum-norm divides by the padded width: loss_scale_factor is not set."
        return ConfigFault("warning", text)

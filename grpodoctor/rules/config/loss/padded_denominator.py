"""CFG007."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class PaddedDenominator(ConfigRule):
    """The denominator that should be constant is the width of the padded batch.

    What it sees:
        verl's seq-mean-token-sum-norm without loss_scale_factor.

    Why it matters:
        Without the factor, the loss is divided by the width of the batch, which is the longest
        response in it. The learning rate then changes from batch to batch, and long responses
        shrink the update of all others.

    Evidence it needs:
        Settings: `padded_denominator`.

    Remedies:
        Set loss_scale_factor to the maximum response length (`dr-grpo`).

    When it is wrong:
        If every batch is padded to the same width, the denominator is constant.

    References:
        Understanding R1-Zero-Like Training, arXiv 2503.20783; verl, agg_loss.
    """

    code = "CFG007"
    name = "padded-denominator"
    explains = ("length-growth",)
    summary = "The constant denominator is the padded width of the batch."
    needs = ("padded_denominator",)
    remedies = ("dr-grpo",)
    references = ("arXiv 2503.20783",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for the missing factor."""
        if settings.get("padded_denominator") is not True:
            return None
        text = "seq-mean-token-sum-norm divides by the padded width: loss_scale_factor is not set."
        return ConfigFault("warning", text)

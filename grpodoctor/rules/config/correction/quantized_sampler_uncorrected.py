"""CFG032."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class QuantizedSamplerUncorrected(ConfigRule):
    """The sampler is quantized, and no correction is set.

    What it sees:
        A quantized sampler without an engine correction and without a loss whose ratio is taken to
        the sampler.

    Why it matters:
        Rounded weights make the sampler a different policy. int8 is often harmless; 4-bit weights
        and mixture-of-experts models are not. Unlikely tokens differ most, and exploration depends
        on them.

    Evidence it needs:
        Settings: `sampler_quantized`, `correction`, `loss`.

    Remedies:
        Switch a correction on (`tis`), and watch MIS001.

    When it is wrong:
        An int8 or fp8 sampler of a dense model may agree well enough; `grpodoctor probe` measures
        it.

    References:
        Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training
        (int8 rollouts); FlashRL.
    """

    code = "CFG032"
    name = "quantized-sampler-uncorrected"
    explains = ("engine-mismatch", "off-policy")
    summary = "The sampler is quantized, and no correction is set."
    condition = "engine-mismatch"
    needs = ("sampler_quantized", "correction", "loss")
    remedies = ("tis", "higher-precision-sampler")
    references = ("arXiv 2510.26788",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for a correction."""
        is_quantized = settings.get("sampler_quantized") is True
        is_anchored = str(settings.get("loss")).startswith("dppo_")
        if not is_quantized or is_anchored or not settings.is_one_of("correction", "none"):
            return None
        return ConfigFault(
            "info", "The sampler is quantized, and no correction is set (correction=none)."
        )

"""CFG031."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings

_ANCHORED = (
    "dppo_binary_tv",
    "dppo_binary_kl",
    "dppo_topk_tv",
    "dppo_topk_kl",
    "ipo",
    "m2po",
    "scalerl",
    "minirl",
)
"""Losses whose ratio is learner / sampler."""


class CorrectionTwice(ConfigRule):
    """Two settings correct the same engine mismatch.

    What it sees:
        A correction (TIS, MIS, IcePop) together with a loss whose ratio is taken to the sampler, or
        with old log-probabilities from the sampler.

    Why it matters:
        DPPO, ScaleRL and bypass modes take the ratio to the sampler, which already contains the
        engine mismatch. A correction then multiplies it a second time. If the sampler's
        log-probabilities are the old ones, the weight of the correction is 1 and it has no effect.

    Evidence it needs:
        Settings: `loss`, `correction`. Optional: `old_logprobs`.

    Remedies:
        Keep one of the two.

    When it is wrong:
        Masking outliers may be combined with such a loss on purpose.

    References:
        DPPO, arXiv 2602.04879; SkyRL, `cispo_anchor`.
    """

    code = "CFG031"
    name = "correction-twice"
    summary = "The engine mismatch is corrected twice, or the correction has no effect."
    needs = ("loss", "correction")
    remedies = ("dppo", "recompute-old-logprobs")
    references = ("arXiv 2602.04879",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for a correction of a ratio that contains the mismatch."""
        correction = settings.get("correction")
        if correction == "none":
            return None
        if settings.is_one_of("loss", *_ANCHORED):
            loss = settings.get("loss")
            text = f"{correction} corrects the mismatch that the ratio of {loss} already contains."
            return ConfigFault("warning", text)
        if settings.is_one_of("old_logprobs", "sampler"):
            text = f"{correction} has no effect: old log-probabilities are the sampler's own."
            return ConfigFault("warning", text)
        return None

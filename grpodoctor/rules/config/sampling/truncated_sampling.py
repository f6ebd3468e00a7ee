"""CFG021."""

from __future__ import annotations

from grpodoctor.rules.base import Severity
from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class TruncatedSampling(ConfigRule):
    """Top-p, top-k or min-p truncates the distribution of training samples.

    What it sees:
        top-p below 1, top-k above 0, or min-p above 0 in the sampling of training responses.

    Why it matters:
        The learner normalizes over the whole vocabulary, the sampler over the kept tokens only.
        With top-p 0.8 a ratio to the sampler is biased by up to 20 %, and tokens outside the kept
        set are never sampled, so they are never reinforced. From top-p 0.82 on it is a note: the
        official examples of ms-swift train with 0.9.

    Evidence it needs:
        Settings: `temperature`. One of `top_p`, `top_k` and `min_p`.

    Remedies:
        Sample from the whole vocabulary (`whole-distribution`), or keep the sampling mask for the
        learner.

    When it is wrong:
        The framework may renormalize the learner over the sampled tokens. Top-p 0.99 or top-k in
        the hundreds change little.

    References:
        DeepSeek-V3.2, arXiv 2512.02556 (keep the sampling mask); TRL issues 6789 and 7269.
    """

    code = "CFG021"
    name = "truncated-sampling"
    explains = ("engine-mismatch", "off-policy")
    summary = "Top-p, top-k or min-p truncates the distribution of training samples."
    condition = "off-policy"
    needs = ("temperature",)
    remedies = ("whole-distribution",)
    references = (
        "arXiv 2512.02556",
        "github.com/huggingface/trl/issues/7269",
    )

    harmful_top_p: float = 0.82
    """exp(-0.2): the bias of a log-ratio then reaches the usual clip of 0.2."""
    harmless_top_p: float = 0.99
    """A bias of 0.01, the rounding of the engines."""
    harmful_top_k: float = 19.0
    """Fewer tokens than are likely at a typical fork; TRL's former default, 50, trained well."""
    harmful_min_p: float = 0.1
    """Removes tokens that are a tenth as likely as the best."""

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Take the cut with the largest effect."""
        top_p = settings.number("top_p")
        if top_p is not None and 0 < top_p < self.harmless_top_p:
            severity: Severity = "warning" if top_p <= self.harmful_top_p else "info"
            return ConfigFault(severity, f"Training responses are sampled with top-p {top_p:g}.")
        top_k = settings.number("top_k")
        if top_k is not None and top_k > 0:
            severity = "warning" if top_k <= self.harmful_top_k else "info"
            return ConfigFault(severity, f"Training responses are sampled with top-k {top_k:g}.")
        min_p = settings.number("min_p")
        if min_p is not None and min_p > 0:
            severity = "warning" if min_p >= self.harmful_min_p else "info"
            return ConfigFault(severity, f"Training responses are sampled with min-p {min_p:g}.")
        return None

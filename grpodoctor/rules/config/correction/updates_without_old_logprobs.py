"""CFG030."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class UpdatesWithoutOldLogprobs(ConfigRule):
    """Several updates per batch use the sampler's log-probabilities as the old policy.

    What it sees:
        PPO's clip with old log-probabilities from the sampler and more than one update per batch.

    Why it matters:
        The clip should bound how far the updates on this batch move the policy. With the sampler's
        log-probabilities, it also counts the difference between the engines: tokens on which the
        engines differ are clipped at every update, even the first. The finding is a warning if the
        sampler is quantized, because the engines are then known to differ.

    Evidence it needs:
        Settings: `loss`, `old_logprobs`, `updates_per_batch`. Optional: `sampler_quantized`.

    Remedies:
        Recompute old log-probabilities with the learner at the start of the batch.

    When it is wrong:
        Engines that agree to the last bit, and losses that use the sampler's log-probabilities by
        design.

    References:
        Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training;
        arXiv 2512.01374 (the two factors of the ratio).
    """

    code = "CFG030"
    name = "updates-without-old-logprobs"
    explains = ("wrong-old-logprobs", "large-kl")
    summary = "Several updates are clipped against the sampler's log-probabilities."
    condition = "wrong-old-logprobs"
    needs = ("loss", "old_logprobs", "updates_per_batch")
    remedies = ("recompute-old-logprobs", "tis")
    references = ("arXiv 2512.01374",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for the sampler's log-probabilities in PPO's clip."""
        updates = settings.number("updates_per_batch") or 1.0
        is_clipped = settings.is_one_of("loss", "ppo_clip", "gspo", "gspo_token", "gmpo")
        if not is_clipped or not settings.is_one_of("old_logprobs", "sampler") or updates <= 1:
            return None
        text = f"{updates:g} updates per batch are clipped against the sampler's log-probabilities."
        is_known_to_differ = settings.get("sampler_quantized") is True
        return ConfigFault("warning" if is_known_to_differ else "info", text)

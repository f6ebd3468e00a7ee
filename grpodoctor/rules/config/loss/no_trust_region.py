"""CFG010."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class NoTrustRegion(ConfigRule):
    """Several updates per batch are made, and nothing bounds how far they go.

    What it sees:
        A loss without a trust region, or clip bounds that are never reached, with more than one
        update per batch.

    Why it matters:
        From the second update on, the samples come from an older policy. Without a clip or a mask,
        the policy can move far from the data within one batch.

    Evidence it needs:
        Settings: `loss`, `updates_per_batch`. Optional: `clip_low` and `clip_high`.

    Remedies:
        Use one update per batch, or a loss that bounds the ratio.

    When it is wrong:
        Few, small updates on large batches stay close to the data without a bound.

    References:
        PPO, arXiv 1707.06347, section 3.
    """

    code = "CFG010"
    name = "no-trust-region"
    explains = ("large-kl", "reward-loss")
    summary = "Several updates per batch are made without a bound on the ratio."
    condition = "oversized-updates"
    needs = ("loss", "updates_per_batch")
    remedies = ("fewer-updates",)
    references = ("arXiv 1707.06347",)

    widest: float = 5.0
    """Distance from 1 above which the clip of a token hardly ever acts."""

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for a loss or a clip without effect."""
        updates = settings.number("updates_per_batch") or 1.0
        if updates <= 1:
            return None
        if settings.is_one_of("loss", "reinforce"):
            text = f"{updates:g} updates per batch have no trust region: the loss has no clip."
            return ConfigFault("warning", text)
        high = settings.amount("clip_high")
        if settings.is_one_of("loss", "ppo_clip") and high >= self.widest:
            text = (
                f"The clip of {high:g} never acts, although {updates:g} updates are made per batch."
            )
            return ConfigFault("info", text)
        return None

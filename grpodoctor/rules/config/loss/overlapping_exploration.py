"""CFG005."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class OverlappingExploration(ConfigRule):
    """Several settings raise entropy at once.

    What it sees:
        Two or more of: a raised upper clip, an entropy bonus, a covariance loss, a sampling
        temperature above 1.

    Why it matters:
        Each setting was tuned alone. Together they push entropy further than intended, and no chart
        shows which one did it. A bonus of 0.01 made entropy explode even alone.

    Evidence it needs:
        Settings: `loss`, `clip_low`, `clip_high`, `entropy_coefficient`. Optional: `temperature`.

    Remedies:
        Keep one of them; start with the raised clip.

    When it is wrong:
        A combination that was tuned as a whole is fine.

    References:
        The Entropy Mechanism of RL for Reasoning Language Models, arXiv 2505.22617, section 4;
        DAPO, arXiv 2503.14476, section 3.1.
    """

    code = "CFG005"
    name = "overlapping-exploration"
    explains = ("entropy-rise",)
    summary = "Two or more settings raise entropy in different ways."
    needs = ("loss", "clip_low", "clip_high", "entropy_coefficient")
    remedies = ("clip-higher",)
    references = ("arXiv 2505.22617", "arXiv 2503.14476")

    large_bonus: float = 0.01
    """Coefficient at which entropy exploded in arXiv 2505.22617."""
    hot: float = 1.05
    """Temperature that counts as raised; recipes sample at 1."""

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Count the settings that raise entropy."""
        low, high = settings.amount("clip_low"), settings.amount("clip_high")
        bonus = settings.amount("entropy_coefficient")
        names = {
            "a raised clip": settings.is_one_of("loss", "ppo_clip") and high > 1.1 * low,
            "an entropy bonus": bonus > 0,
            "a covariance loss": settings.is_one_of("loss", "clip_cov", "kl_cov"),
            "a raised temperature": (settings.number("temperature") or 1.0) >= self.hot,
        }
        used = [name for name, is_used in names.items() if is_used]
        if len(used) < 2:
            return None
        text = f"{len(used)} settings raise entropy at once: {' and '.join(used)}."
        return ConfigFault("warning" if bonus >= self.large_bonus else "info", text)

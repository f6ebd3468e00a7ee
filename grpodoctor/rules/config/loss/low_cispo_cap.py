"""CFG003."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings, Undecided


class LowCispoCap(ConfigRule):
    """CISPO caps its weights at a bound meant for PPO's clip.

    What it sees:
        CISPO with a largest weight below 2, such as 1.28.

    Why it matters:
        CISPO caps the importance weight and keeps the gradient of every token. Published caps are 4
        to 8. At PPO's bound, a token that becomes more likely gets hardly more weight than one that
        does not change, so CISPO loses its advantage over PPO. A bound of 0.28 means a cap of 1.28
        in verl, open-instruct and slime, and a cap of 0.28 in TRL, which removes most of the
        gradient.

    Evidence it needs:
        Settings: `loss`. One of `weight_cap` and `clip_high`.

    Remedies:
        Raise the cap to 5: clip_high 4 in verl, SkyRL and slime, epsilon_high 5 in TRL and
        ms-swift.

    When it is wrong:
        With one update per batch all weights are 1, and the cap has no effect.

    References:
        MiniMax-M1, arXiv 2506.13585; ScaleRL, arXiv 2510.13786 (caps of 4, 5 and 8 make no
        difference).
    """

    code = "CFG003"
    name = "low-cispo-cap"
    explains = ("clipped-tokens",)
    summary = "CISPO's weights are capped as tightly as PPO's clip."
    needs = ("loss",)
    remedies = ("cispo",)
    references = ("arXiv 2506.13585", "arXiv 2510.13786")

    lowest_cap: float = 2.0
    """Half the lowest published cap, 4."""

    def find_fault(self, settings: Settings) -> ConfigFault | Undecided | None:
        """Compare the cap of the weight with published ones."""
        if not settings.is_one_of("loss", "cispo"):
            return None
        weight, high = settings.number("weight_cap"), settings.number("clip_high")
        if weight is None and high is None:
            return Undecided("the config does not determine weight_cap or clip_high")
        cap = 1 + (high or 0.0) if weight is None else weight
        if cap >= self.lowest_cap:
            return None
        return ConfigFault(
            "warning", f"CISPO caps weights at {cap:.3g}; published caps are 4 to 8."
        )

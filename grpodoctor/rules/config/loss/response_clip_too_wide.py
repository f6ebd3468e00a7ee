"""CFG001."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class ResponseClipTooWide(ConfigRule):
    """GSPO's ratio of whole responses is clipped at a bound meant for single tokens.

    What it sees:
        GSPO or one of its variants with a clip bound above 0.05, such as PPO's default of 0.2.

    Why it matters:
        GSPO's ratio is a geometric mean over hundreds of tokens, so it stays within a thousandth of
        1. A bound of 0.2 is never reached: the run has no trust region, and nothing limits the
        step.

    Evidence it needs:
        Settings: `loss`, `clip_low`, `clip_high`.

    Remedies:
        Set the bounds of the paper, 0.0003 and 0.0004. ScaleRL found 0.004 to 0.005 better.

    When it is wrong:
        Responses of fewer than ten tokens have larger ratios, and a wider clip can act on them.

    References:
        GSPO, arXiv 2507.18071 (3e-4 and 4e-4); ScaleRL, arXiv 2510.13786 (4e-3 to 5e-3).
    """

    code = "CFG001"
    name = "response-clip-too-wide"
    explains = ("large-kl",)
    summary = "GSPO uses a clip range for single tokens, so nothing is clipped."
    needs = ("loss", "clip_low", "clip_high")
    remedies = ("gspo",)
    references = ("arXiv 2507.18071", "arXiv 2510.13786")

    widest: float = 0.05
    """Ten times the widest bound known to work, 5e-3."""

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Compare the wider bound with the widest known to work."""
        low, high = settings.amount("clip_low"), settings.amount("clip_high")
        loss = settings.get("loss")
        if loss not in ("gspo", "gspo_token", "luspo") or max(low, high) <= self.widest:
            return None
        bound = max(low, high)
        text = f"The clip of {bound:g} never acts: {loss} clips the ratio of whole responses."
        return ConfigFault("warning", text)

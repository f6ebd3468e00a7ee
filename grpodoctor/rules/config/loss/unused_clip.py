"""CFG009."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings

_WITHOUT_CLIP = ("sapo", "vespo", "kl_cov", "reinforce")


class UnusedClip(ConfigRule):
    """The upper clip bound is raised, but this loss does not clip.

    What it sees:
        An upper clip bound above the lower one, with a loss that does not clip.

    Why it matters:
        SAPO, VESPO and KL-Cov replace the clip, and REINFORCE has no ratio. The setting looks like
        a remedy for falling entropy but has no effect.

    Evidence it needs:
        Settings: `loss`, `clip_low`, `clip_high`.

    Remedies:
        Remove the setting, or use the parameters of the loss itself.

    When it is wrong:
        Never: the setting has no effect, but it does no harm either.

    References:
        SAPO, arXiv 2511.20347; DAPO, arXiv 2503.14476, section 3.1.
    """

    code = "CFG009"
    name = "unused-clip"
    summary = "The upper clip bound is raised, but this loss does not clip."
    condition = "expected"
    needs = ("loss", "clip_low", "clip_high")
    remedies = ("entropy-bonus",)
    references = ("arXiv 2511.20347", "arXiv 2503.14476")

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for a raised clip where the loss uses none."""
        low, high = settings.amount("clip_low"), settings.amount("clip_high")
        if high <= 1.1 * low or not settings.is_one_of("loss", *_WITHOUT_CLIP):
            return None
        text = f"The clip of {high:g} has no effect: {settings.get('loss')} does not clip."
        return ConfigFault("info", text)

"""CFG011."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class LowDualClip(ConfigRule):
    """The dual-clip bound lies inside the regular clip range.

    What it sees:
        A dual clip (clip_ratio_c, delta, eps_clip_c) of at most 1 + clip_high.

    Why it matters:
        The dual clip stops tokens with a negative advantage whose ratio is far too large. It must
        be above 1 + clip_high; 3 is usual. A lower bound removes the gradient of ordinary tokens
        that should become less likely, and a bound of 1 or less removes nearly all of it.

    Evidence it needs:
        Settings: `dual_clip`, `clip_high`, `loss`.

    Remedies:
        Set it to 3, or to 10 for large models.

    When it is wrong:
        In verl, DPPO uses the same key as a cap on its weight.

    References:
        Mastering Complex Control in MOBA Games with Deep RL, arXiv 1912.09729.
    """

    code = "CFG011"
    name = "low-dual-clip"
    explains = ("clipped-tokens",)
    summary = "The dual-clip bound lies inside the regular clip range."
    needs = ("dual_clip", "clip_high", "loss")
    remedies = ("recompute-old-logprobs",)
    references = ("arXiv 1912.09729",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Compare the two bounds of the ratio."""
        dual, high = settings.amount("dual_clip"), settings.amount("clip_high")
        if not settings.is_one_of("loss", "ppo_clip") or not 0 < dual <= 1 + high:
            return None
        text = f"The dual clip of {dual:g} is not above the regular bound of {1 + high:g}."
        return ConfigFault("warning", text)

"""CFG008."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class ResponseRatioWithTokenMean(ConfigRule):
    """GSPO's loss is averaged over tokens instead of responses.

    What it sees:
        A ratio of whole responses with a mean over all tokens, as with TRL's default loss_type.

    Why it matters:
        Every token of a response has the same ratio, so a mean over tokens gives a response of
        4,000 tokens forty times the weight of one of 100. GSPO gives both the same weight.

    Evidence it needs:
        Settings: `sequence_ratio_weights_tokens`.

    Remedies:
        Average over responses: loss_type=grpo in TRL and ms-swift.

    When it is wrong:
        Weighting by length may be intended; AReaL offers no other aggregation.

    References:
        GSPO, arXiv 2507.18071, Eq. 5; TRL's warning in GRPOTrainer.
    """

    code = "CFG008"
    name = "response-ratio-with-token-mean"
    summary = "GSPO's loss is averaged over tokens, so long responses weigh more."
    needs = ("sequence_ratio_weights_tokens",)
    remedies = ("gspo",)
    references = ("arXiv 2507.18071",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for the mean over tokens."""
        if settings.get("sequence_ratio_weights_tokens") is not True:
            return None
        text = "GSPO's loss is averaged over tokens, so long responses weigh more than short ones."
        return ConfigFault("info", text)

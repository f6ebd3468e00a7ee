"""CFG027."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class ToolTokensInLoss(ConfigRule):
    """The loss contains tool output, which the policy did not write.

    What it sees:
        A mask of tool output that is switched off.

    Why it matters:
        Tool output was not sampled from the policy. Its ratios are far from 1, its length dominates
        the loss, and the policy learns to write tool results itself.

    Evidence it needs:
        Settings: `tool_tokens_in_loss`.

    Remedies:
        Switch on the mask (`mask-environment-tokens`).

    When it is wrong:
        A run without tools.

    References:
        Search-R1, arXiv 2503.09516, section 3.1.
    """

    code = "CFG027"
    name = "tool-tokens-in-loss"
    explains = ("wrong-loss-tokens",)
    summary = "Tool output is trained on as if the policy had written it."
    condition = "wrong-loss-tokens"
    needs = ("tool_tokens_in_loss",)
    remedies = ("mask-environment-tokens",)
    references = ("arXiv 2503.09516",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for the switch."""
        if settings.get("tool_tokens_in_loss") is not True:
            return None
        return ConfigFault(
            "warning", "Tool tokens are in the loss: their mask is switched off (False)."
        )

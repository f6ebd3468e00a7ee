"""CFG027."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings
from grpodoctor.vocabulary.conditions import Condition


@dataclass(frozen=True)
class ToolTokensInLoss(ConfigRule):
    """The loss contains tokens that the policy did not write.

    What it sees:
        Masking of tool output switched off.

    Why it matters:
        Tool output was not sampled from the policy. Its ratios are far from 1, it dominates the
        loss with its length, and the policy learns to write tool results itself.

    Evidence it needs:
        Settings: `tool_tokens_in_loss`.

    Remedies:
        Switch the masking on (`mask-environment-tokens`).

    When it is wrong:
        A run without tools.

    References:
        Search-R1, arXiv 2503.09516.
    """

    code: ClassVar[str] = "CFG027"
    name: ClassVar[str] = "tool-tokens-in-loss"
    explains: ClassVar[tuple[Condition, ...]] = ("wrong-loss-tokens",)
    summary: ClassVar[str] = "Tokens of tools are trained as if the policy had written them."
    condition: ClassVar[Condition] = "wrong-loss-tokens"
    needs: ClassVar[tuple[str, ...]] = ("tool_tokens_in_loss",)
    remedies: ClassVar[tuple[str, ...]] = ("mask-environment-tokens",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.09516",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for the switch."""
        if settings.get("tool_tokens_in_loss") is not True:
            return None
        return ConfigFault(
            "warning", "Tool tokens are in the loss: their mask is switched off (False)."
        )

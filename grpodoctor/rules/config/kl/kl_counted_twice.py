"""CFG041."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings
from grpodoctor.vocabulary.conditions import Condition


@dataclass(frozen=True)
class KlCountedTwice(ConfigRule):
    """The KL penalty counts twice: in the reward and in the loss.

    What it sees:
        Coefficients above 0 for both.

    Why it matters:
        Both pull toward the same reference, so the penalty is twice as strong as either coefficient
        says, and one of the two is normalized by the group.

    Evidence it needs:
        Settings: `kl_in_reward`, `kl_in_loss`.

    Remedies:
        Keep the one in the loss.

    When it is wrong:
        A recipe that was tuned with both.

    References:
        DeepSeekMath, arXiv 2402.03300, section 4.1.1 (GRPO moves the KL from the reward to the
        loss).
    """

    code: ClassVar[str] = "CFG041"
    name: ClassVar[str] = "kl-counted-twice"
    summary: ClassVar[str] = "The KL penalty is in the reward and in the loss."
    condition: ClassVar[Condition] = "wrong-settings"
    needs: ClassVar[tuple[str, ...]] = ("kl_in_reward", "kl_in_loss")
    remedies: ClassVar[tuple[str, ...]] = ("check-kl-sign",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2402.03300",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for both."""
        reward, loss = settings.number("kl_in_reward") or 0.0, settings.number("kl_in_loss") or 0.0
        if reward <= 0 or loss <= 0:
            return None
        text = f"The KL penalty is in the reward ({reward:g}) and in the loss ({loss:g})."
        return ConfigFault("warning", text)

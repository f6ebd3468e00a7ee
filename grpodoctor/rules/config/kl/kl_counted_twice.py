"""CFG041."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class KlCountedTwice(ConfigRule):
    """The KL penalty counts twice: in the reward and in the loss.

    What it sees:
        A KL coefficient above 0 in the reward and in the loss.

    Why it matters:
        Both pull toward the same reference, so the penalty is stronger than either coefficient
        says. The one in the reward is also normalized with the rewards of the group.

    Evidence it needs:
        Settings: `kl_in_reward`, `kl_in_loss`.

    Remedies:
        Keep the one in the loss (`kl-in-loss-only`).

    When it is wrong:
        A recipe that was tuned with both.

    References:
        DeepSeekMath, arXiv 2402.03300, section 4.1.1 (GRPO moves the KL from the reward to the
        loss).
    """

    code = "CFG041"
    name = "kl-counted-twice"
    summary = "The KL penalty is in the reward and in the loss."
    needs = ("kl_in_reward", "kl_in_loss")
    remedies = ("kl-in-loss-only",)
    references = ("arXiv 2402.03300",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for both."""
        reward, loss = settings.amount("kl_in_reward"), settings.amount("kl_in_loss")
        if reward <= 0 or loss <= 0:
            return None
        text = (
            f"The KL penalty is in the reward ({reward:g}) and in the loss ({loss:g}): "
            "keep the one in the loss."
        )
        return ConfigFault("warning", text)

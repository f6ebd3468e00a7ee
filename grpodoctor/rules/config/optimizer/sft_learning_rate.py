"""CFG050."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class SftLearningRate(ConfigRule):
    """The learning rate is at least ten times higher than in RL recipes.

    What it sees:
        A learning rate of 1e-4 or more for full training of a pretrained model, or of 1e-2 or more
        for adapters.

    Why it matters:
        RL recipes for full training use 5e-7 to 5e-6. At the rates of supervised
        fine-tuning (SFT), the first updates move the policy so far that entropy collapses or
        explodes within tens of steps.

    Evidence it needs:
        Settings: `learning_rate`, `lora_rank`. Optional: `pretrained_model`.

    Remedies:
        Start at 1e-6 for full training, and at 1e-5 to 1e-4 for LoRA (`lower-learning-rate`).

    When it is wrong:
        Small models trained from scratch, and optimizers other than Adam, need higher rates.

    References:
        DAPO, arXiv 2503.14476 (1e-6); DeepSeekMath, arXiv 2402.03300 (1e-6); LoRA Without Regret,
        2025 (ten times higher for LoRA).
    """

    code = "CFG050"
    name = "sft-learning-rate"
    explains = ("oversized-updates", "large-kl", "reward-loss")
    summary = "The learning rate suits supervised fine-tuning (SFT) and is too high for RL."
    condition = "oversized-updates"
    needs = ("learning_rate", "lora_rank")
    remedies = ("lower-learning-rate",)
    references = ("arXiv 2503.14476", "arXiv 2402.03300")

    full: float = 0.0001
    """Twenty times the highest usual rate of full training, 5e-6."""
    adapters: float = 0.01
    """A hundred times the usual rate of adapters, 1e-4."""

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Compare the rate with the usual ones, if the model is pretrained."""
        rate, rank = settings.amount("learning_rate"), settings.amount("lora_rank")
        if settings.get("pretrained_model") is False or rate < (
            self.adapters if rank else self.full
        ):
            return None
        what = "adapters" if rank else "full training"
        usual = "1e-5 to 1e-4" if rank else "5e-7 to 5e-6"
        return ConfigFault(
            "warning", f"A learning rate of {rate:g} for {what} is far above {usual}."
        )

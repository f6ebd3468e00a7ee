"""CFG050."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import (
    ConfigFault,
    ConfigRule,
    Settings,
    Undecided,
)
from grpodoctor.vocabulary.learning_rates import ADAPTERS, FULL, usual_rates


class SftLearningRate(ConfigRule):
    """The learning rate is far higher than in RL recipes.

    What it sees:
        A learning rate of 5e-5 or more for full training of a pretrained model, or of 1e-2 or more
        for adapters. For full training at 2e-5 to 5e-5 the finding is `info`. Where the config does
        not say which weights are trained, rates between the two bounds are not judged.

    Why it matters:
        RL recipes for full training use 5e-7 to 5e-6. At the rates of supervised
        fine-tuning (SFT), the first updates move the policy so far that entropy collapses or
        explodes within tens of steps. 5e-5 is the default of transformers' Trainer, which configs
        that were written for SFT keep.

    Evidence it needs:
        Settings: `learning_rate`. Optional: `lora_rank`, `pretrained_model`. Most frameworks train
        all weights unless their config says otherwise; TRL takes adapters from its caller.

    Remedies:
        Start at 1e-6 for full training, and at 1e-5 to 1e-4 for LoRA (`lower-learning-rate`).

    When it is wrong:
        A public recipe of Open-R1 trains all weights at 2e-5, so that rate alone is no fault. Small
        models trained from scratch, and optimizers other than Adam, need higher rates.

    References:
        DAPO, arXiv 2503.14476 (1e-6); DeepSeekMath, arXiv 2402.03300 (1e-6); LoRA Without Regret,
        2025 (ten times higher for LoRA).
    """

    code = "CFG050"
    name = "sft-learning-rate"
    explains = ("oversized-updates", "large-kl", "reward-loss")
    summary = "The learning rate suits supervised fine-tuning (SFT) and is too high for RL."
    condition = "oversized-updates"
    needs = ("learning_rate",)
    remedies = ("lower-learning-rate",)
    references = ("arXiv 2503.14476", "arXiv 2402.03300")

    full: float = 5e-5
    """Ten times the highest usual rate of full training, 5e-6."""
    adapters: float = ADAPTERS.far_above
    """A hundred times the usual rate of adapters, 1e-4."""
    full_note: float = 2e-5
    """Rate of full training that is worth a note: four times the highest usual rate."""

    def find_fault(self, settings: Settings) -> ConfigFault | Undecided | None:
        """Compare the rate with the usual ones, if the model is pretrained."""
        rate, rank = settings.amount("learning_rate"), settings.number("lora_rank")
        if settings.get("pretrained_model") is False:
            return None
        if rank is None and self.full <= rate < self.adapters:
            return Undecided(
                f"a learning rate of {rate:g} suits adapters only (full training: {FULL.usual}), "
                "and the config does not state which weights are trained"
            )
        rates = ADAPTERS if rank is None else usual_rates(rank)
        text = f"A learning rate of {rate:g} for {rates.what} is far above {rates.usual}."
        if rate >= (self.full if rank == 0 else self.adapters):
            return ConfigFault("warning", text)
        if rank == 0 and rate >= self.full_note:
            return ConfigFault("info", text.replace("far above", "above the usual"))
        return None

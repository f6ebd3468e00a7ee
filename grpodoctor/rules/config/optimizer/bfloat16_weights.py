"""CFG052."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class Bfloat16Weights(ConfigRule):
    """Updates are lost in the rounding of bf16 weights.

    What it sees:
        All weights trained in bf16, without a float32 copy, at a learning rate below 1e-5.

    Why it matters:
        A bf16 weight of 0.02 changes in steps of 0.0001. An Adam step changes it by about the
        learning rate, such as 1e-6, so nearly every update is rounded away. The gradient looks
        healthy and the reward stays flat.

    Evidence it needs:
        Settings: `unprotected_bfloat16`, `learning_rate`.

    Remedies:
        Keep weights in float32 and compute in bf16 (`float32-weights`), or train LoRA adapters.

    When it is wrong:
        An optimizer with stochastic rounding or Kahan summation keeps the updates.

    References:
        Mixed Precision Training, arXiv 1710.03740, section 3.1.
    """

    code = "CFG052"
    name = "bfloat16-weights"
    explains = ("undersized-updates", "plateau")
    summary = "Weights are in bf16 without a float32 copy."
    condition = "undersized-updates"
    needs = ("unprotected_bfloat16", "learning_rate")
    remedies = ("float32-weights",)
    references = ("arXiv 1710.03740",)

    large_enough: float = 1e-05
    """A tenth of the spacing of bf16 numbers near 0.02."""

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for weights that are too coarse for the step."""
        rate = settings.amount("learning_rate")
        if settings.get("unprotected_bfloat16") is not True or rate >= self.large_enough:
            return None
        text = f"Weights are bf16 without a float32 copy; steps of {rate:g} are rounded away."
        return ConfigFault("warning", text)

"""CFG051."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings
from grpodoctor.vocabulary.learning_rates import usual_rates


class NoLearningRate(ConfigRule):
    """The learning rate is too small to change the weights.

    What it sees:
        A learning rate of 0, or below 1e-9. Also one of at most 2.5e-8 for full training, or 1e-7
        for adapters: a twentieth and a hundredth of the lowest rates of recipes.

    Why it matters:
        An Adam step changes each weight by about the learning rate. Below 1e-9, this is less than
        the rounding of float32 weights, so the policy never changes. At the lowest rates of recipes
        a run takes hundreds of steps to learn; at a small part of them it looks flat.

    Evidence it needs:
        Settings: `learning_rate`; better: `lora_rank`.

    Remedies:
        Set a learning rate, unless the run is a control (`raise-learning-rate`).

    When it is wrong:
        A control run at learning rate 0, as `grpodoctor preflight --control` uses it.

    References:
        Adam, arXiv 1412.6980.
    """

    code = "CFG051"
    name = "no-learning-rate"
    explains = ("undersized-updates", "plateau")
    summary = "The learning rate is zero or too small to change any weight."
    condition = "undersized-updates"
    needs = ("learning_rate",)
    remedies = ("raise-learning-rate",)
    references = ("arXiv 1412.6980",)
    judges_any_method = True

    smallest: float = 1e-09
    """Weights of about 0.02 have a rounding of 2e-9 in float32."""

    far_below_full: float = 2.5e-08
    """A twentieth of the lowest usual rate of full training, 5e-7."""
    far_below_adapters: float = 1e-07
    """A hundredth of the lowest usual rate of adapters, 1e-5."""

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Compare the rate with the rounding of the weights, and with the usual ones."""
        rate, rank = settings.amount("learning_rate"), settings.number("lora_rank")
        if rate < self.smallest:
            return ConfigFault("warning", f"A learning rate of {rate:g} changes no weight.")
        bound = self.far_below_adapters if rank else self.far_below_full
        if rank is None or rate > bound:
            return None
        usual = usual_rates(rank)
        text = f"A learning rate of {rate:g} for {usual.what} is far below {usual.usual}."
        return ConfigFault("warning", text)

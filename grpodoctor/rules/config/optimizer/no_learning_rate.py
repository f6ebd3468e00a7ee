"""CFG051."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class NoLearningRate(ConfigRule):
    """The learning rate is too small to change the weights.

    What it sees:
        A learning rate of 0, or below 1e-9.

    Why it matters:
        An Adam step changes each weight by about the learning rate. Below 1e-9, this is less than
        the rounding of float32 weights, so the policy never changes.

    Evidence it needs:
        Settings: `learning_rate`.

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

    smallest: float = 1e-09
    """Weights of about 0.02 have a rounding of 2e-9 in float32."""

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Compare the rate with the rounding of the weights."""
        rate = settings.amount("learning_rate")
        if rate >= self.smallest:
            return None
        return ConfigFault("warning", f"A learning rate of {rate:g} changes no weight.")

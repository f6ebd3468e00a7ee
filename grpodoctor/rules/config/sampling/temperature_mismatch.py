"""CFG020."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class TemperatureMismatch(ConfigRule):
    """Responses are sampled at a different temperature than the loss assumes.

    What it sees:
        A sampling temperature that differs from the temperature of the learner's log-probabilities.

    Why it matters:
        At temperature 0.7 the sampler's distribution is sharper than the one that the loss
        differentiates. Every ratio is then wrong in the same direction, tokens are clipped before
        the first update, and the policy is pushed toward the sharper distribution.

    Evidence it needs:
        Settings: `temperature`, `learner_temperature`.

    Remedies:
        Use one temperature in both; 1 is the usual choice.

    When it is wrong:
        The framework may divide the logits by the temperature without showing it in its config.

    References:
        OpenRLHF, verl and TRL divide the learner's logits by the sampling temperature; SkyRL,
        `trainer.algorithm.temperature`.
    """

    code = "CFG020"
    name = "temperature-mismatch"
    explains = ("off-policy", "engine-mismatch")
    summary = "The sampler and the loss have different temperatures."
    condition = "off-policy"
    needs = ("temperature", "learner_temperature")
    remedies = ("one-temperature", "recompute-old-logprobs")
    references = ("arXiv 2402.03300",)

    tolerance: float = 0.02
    """Relative difference without effect. To second order its KL is half its square times the
    variance of log p: 0.0002 nats at a variance of 1, below what two engines differ by. Some
    configs sample at 0.99."""

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Compare the two temperatures."""
        sampler = settings.amount("temperature")
        learner = settings.amount("learner_temperature")
        if abs(sampler - learner) <= self.tolerance * max(sampler, learner):
            return None
        text = f"The sampler's temperature is {sampler:g}, and the loss uses {learner:g}."
        return ConfigFault("warning", text)

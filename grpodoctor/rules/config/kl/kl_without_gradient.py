"""CFG042."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class KlWithoutGradient(ConfigRule):
    """The KL penalty in the loss uses an estimator whose gradient is zero on average.

    What it sees:
        The estimator k1 in the loss, with a coefficient above 0.

    Why it matters:
        The gradient of k1, the plain log-ratio, is zero in expectation if the policy itself sampled
        the tokens: the penalty adds noise and does not pull. k1 is slime's default.

    Evidence it needs:
        Settings: `kl_in_loss`, `kl_estimator`.

    Remedies:
        Use k3 (low_var_kl) or k2 in the loss. In the reward, k1 is right.

    When it is wrong:
        The framework may multiply the estimate by the ratio, which restores the gradient.

    References:
        arXiv 2506.09477; arXiv 2510.01555 (gradients of the estimators).
    """

    code = "CFG042"
    name = "kl-without-gradient"
    explains = ("reference-drift",)
    summary = "The estimator k1 in the loss has no gradient on average."
    needs = ("kl_in_loss", "kl_estimator")
    remedies = ("check-kl-sign", "kl-penalty")
    references = ("arXiv 2506.09477", "arXiv 2510.01555")

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for k1 in the loss."""
        coefficient = settings.amount("kl_in_loss")
        if coefficient <= 0 or not settings.is_one_of("kl_estimator", "k1"):
            return None
        text = (
            f"The KL penalty of {coefficient:g} has no effect: k1 in the loss has no mean gradient."
        )
        return ConfigFault("warning", text)

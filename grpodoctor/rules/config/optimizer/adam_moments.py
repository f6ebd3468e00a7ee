"""CFG058."""

from __future__ import annotations

from math import sqrt

from grpodoctor.rules.base import RuleResult
from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.values import NotApplicable


class AdamMoments(ConfigRule):
    """The averages of Adam forget each other, or its epsilon outweighs the gradient.

    What it sees:
        A beta1 above the root of beta2, or an epsilon of at least 0.01.

    Why it matters:
        Adam divides the average gradient by the root of the average squared gradient. With beta1
        above the root of beta2, the divisor forgets a large gradient before the average does: the
        next steps divide it by small ones, so a step has no bound. A gradient of norm 1 has
        entries of about 0.001 in a model of a million weights, and smaller ones in a larger model,
        so an epsilon of 0.01 divides the learning rate by ten or more.

    Evidence it needs:
        Settings: `adam_beta1` with `adam_beta2`, or `adam_epsilon`.

    Remedies:
        Set the values of the paper (`default-adam`).

    When it is wrong:
        The optimizer is not Adam and ignores these settings.

    References:
        Adam, arXiv 1412.6980. Zhang et al., arXiv 2208.09632: the proof that Adam converges needs
        beta1 below the root of beta2.
    """

    code = "CFG058"
    name = "adam-moments"
    explains = ("plateau", "undersized-updates")
    summary = "Adam's betas or its epsilon let single gradients decide, or none."
    needs = ()
    remedies = ("default-adam",)
    references = ("arXiv 1412.6980", "arXiv 2208.09632")
    judges_any_method = True

    largest_epsilon: float = 0.01
    """Ten times the typical entry of a gradient of norm 1 in a model of a million weights."""

    def examine(self, chart: Chart) -> RuleResult:
        """Examine the configuration if it has both betas or an epsilon."""
        known = chart.config.settings(chart.knobs).keys()
        if "adam_epsilon" in known or {"adam_beta1", "adam_beta2"} <= known:
            return super().examine(chart)
        return NotApplicable("the config has neither both betas nor the epsilon of Adam")

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Compare beta1 with the root of beta2, and epsilon with a clipped gradient."""
        beta1, beta2 = settings.number("adam_beta1"), settings.number("adam_beta2")
        epsilon = settings.amount("adam_epsilon")
        if beta1 is not None and beta2 is not None and beta1 > sqrt(beta2):
            text = f"Adam's beta1 of {beta1:g} exceeds the root of its beta2 of {beta2:g}."
            return ConfigFault("warning", text, values={"adam_beta1": beta1, "adam_beta2": beta2})
        if epsilon < self.largest_epsilon:
            return None
        text = f"Adam's epsilon of {epsilon:g} outweighs the entries of a clipped gradient."
        return ConfigFault("warning", text, values={"adam_epsilon": epsilon})

"""ENT005."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite, cite_all
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_COEFFICIENT, _ENTROPY = "optimizer/entropy_coefficient", "entropy/mean"


class EntropyPenalty(Rule):
    """The entropy coefficient in force is negative, so the loss punishes entropy.

    What it sees:
        The coefficient that the run logs with its steps. CFG053 judges the one in the settings; a
        controller, a schedule or a resume may have changed it.

    Why it matters:
        A bonus with the wrong sign makes the policy certain faster than the reward does. The reward
        often rises at first, and exploration is lost for the rest of the run.

    Evidence it needs:
        `optimizer/entropy_coefficient`. Optional: `entropy/mean`.

    Remedies:
        Set the coefficient to zero, or correct its sign.

    When it is wrong:
        Methods that minimize entropy on purpose.

    References:
        Cui et al. 2025, arXiv 2505.22617.
    """

    code: ClassVar[str] = "ENT005"
    name: ClassVar[str] = "entropy-penalty"
    condition: ClassVar[Condition] = "wrong-settings"
    explains: ClassVar[tuple[Condition, ...]] = ("entropy-loss", "diversity-loss")
    summary: ClassVar[str] = "The entropy coefficient in force is negative."
    inputs: ClassVar[tuple[Need, ...]] = (_COEFFICIENT,)
    remedies: ClassVar[tuple[str, ...]] = ("entropy-bonus",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2505.22617",)

    def examine(self, chart: Chart) -> RuleResult:
        """Look at the sign."""
        coefficient = chart.value(_COEFFICIENT)
        if coefficient is None or not coefficient < 0:
            return None
        text = f"The entropy coefficient is {coefficient:.2g}: the loss punishes entropy."
        evidence = (cite(chart, _COEFFICIENT, 0.0), *cite_all(chart, _ENTROPY))
        return Sighting("warning", text, evidence)

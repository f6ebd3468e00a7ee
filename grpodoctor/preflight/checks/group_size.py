"""GRP102."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.preflight.base import Check, Outcome, Remark
from grpodoctor.preflight.chances import beta_of, signal_rate
from grpodoctor.preflight.checks.pass_rates import NEEDS_BENCH
from grpodoctor.preflight.patient import Patient
from grpodoctor.rules.base import Severity

_SIZES = (2, 4, 8, 16, 32, 64)


class GroupSize(Check):
    """Too many groups, or too few in a batch, will carry a signal.

    What it sees:
        A beta distribution fitted to the prompts' pass rates says how many groups of a size have
        both right and wrong responses. Those of the planned group size, times the prompts of a
        batch, are the groups that a step learns from.

    Why it matters:
        The others cost as much and teach nothing. A step that rests on a handful of groups is
        noise.

    What to do:
        Take the group size that gives most groups with a signal for the same number of responses,
        filter the prompts, or sample dynamically.

    When it is wrong:
        Rewards that are more than right or wrong have variance in groups that are all wrong. Pass
        rates change as the model learns.

    References:
        DAPO, arXiv 2503.14476; the beta-binomial is textbook statistics.
    """

    code: ClassVar[str] = "GRP102"
    name: ClassVar[str] = "group-size"
    summary: ClassVar[str] = "Too many groups, or too few in a batch, will carry a signal."
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)
    share: ClassVar[float] = 0.5
    """Of the groups: below it half of the compute is lost."""
    fewest: ClassVar[float] = 16.0
    """Groups with a signal that a step should rest on: with fewer, the mean advantage of a token is
    uncertain by a quarter of its spread."""

    def examine(self, patient: Patient) -> Outcome:
        """Fit the pass rates and count the groups to be expected."""
        solved = patient.bench.solved() if patient.bench and patient.judge else None
        if solved is None:
            return NEEDS_BENCH
        plan = patient.plan
        alpha, beta = beta_of(solved)
        share = signal_rate(alpha, beta, plan.group_size)
        groups = share * plan.batch_prompts
        budget = plan.group_size * plan.batch_prompts
        table = tuple(
            f"{size} responses a prompt, {budget // size} prompts: {rate:.0%} of the groups, "
            f"{rate * (budget // size):.0f} with a signal"
            for size in _SIZES
            if size <= budget
            for rate in (signal_rate(alpha, beta, size),)
        )
        severity: Severity = "warning" if share < self.share or groups < self.fewest else "info"
        told = (
            f"of {plan.batch_prompts} groups of {plan.group_size}, {groups:.0f} ({share:.0%}) can "
            "be expected to have both right and wrong responses"
        )
        advice = ("choose from the table, filter prompts, or sample dynamically (DAPO)",)
        figures = {"share": share, "groups": groups, "alpha": alpha, "beta": beta}
        return (Remark(severity, told, advice if severity == "warning" else (), table, figures),)

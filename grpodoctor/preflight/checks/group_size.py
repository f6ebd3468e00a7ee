"""GRP102."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.preflight.base import Check, Outcome, Remark
from grpodoctor.preflight.checks.pass_rates import NEEDS_BENCH
from grpodoctor.preflight.context import Patient
from grpodoctor.preflight.pass_rate_stats import signal_interval, signal_of
from grpodoctor.rules.base import Severity

_SIZES = (2, 4, 8, 16, 32, 64)


class GroupSize(Check):
    """Too many groups, or too few in a batch, will carry a signal.

    What it sees:
        How many groups of a size have both right and wrong responses: counted in all choices of so
        many of the sampled responses, and, for groups larger than --samples, from a beta
        distribution fitted to the prompts' pass rates. Those of the planned group size, times the
        prompts of a batch, are the groups that a step learns from. The interval of nine tenths is
        that of the choice of prompts and of the responses drawn.

    Why it matters:
        The others cost as much and teach nothing. A step that rests on a handful of groups is
        noise.

    What to do:
        Take the group size that gives most groups with a signal for the same number of responses,
        filter the prompts, or sample dynamically.

    When it is wrong:
        Rewards that are more than right or wrong have variance in groups that are all wrong. Pass
        rates change as the model learns. For groups larger than --samples the fit may be off where
        rates are not spread as a beta distribution is: half of the prompts never solved and half
        by every second response, seen eight times each, look like 62 % of groups of 16 where it is
        half. Raise --samples then.

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
        share = signal_of(solved, plan.group_size)
        groups = share * plan.batch_prompts
        low, high = signal_interval(solved, plan.group_size, seed=plan.seed)
        budget = plan.group_size * plan.batch_prompts
        table = tuple(
            f"{size} responses to each of {budget // size}: {rate:.0%} of the groups, "
            f"{rate * (budget // size):.0f} with a signal"
            + (" (by the fit)" if size > solved.shape[1] else "")
            for size in _SIZES
            if size <= budget
            for rate in (signal_of(solved, size),)
        )
        severity: Severity = "warning" if share < self.share or groups < self.fewest else "info"
        told = (
            f"of {plan.batch_prompts} groups of {plan.group_size}, {groups:.0f} can be expected to "
            f"have both right and wrong responses: {share:.0%}, between {low:.0%} and {high:.0%}"
        )
        advice = ("choose from the table, filter prompts, or sample dynamically (DAPO)",)
        figures = {
            "share": share,
            "share_low": low,
            "share_high": high,
            "zero_variance": 1 - share,
            "groups": groups,
        }
        return (Remark(severity, told, advice if severity == "warning" else (), table, figures),)

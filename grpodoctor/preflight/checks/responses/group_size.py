"""GRP102."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.checks.responses.pass_rates import requires_rewarded_responses
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult
from grpodoctor.preflight.sampling.pass_rate_stats import signal_rate, signal_rate_interval
from grpodoctor.rules.base import Severity

_SIZES = (2, 4, 8, 16, 32, 64)


class GroupSize(Check):
    """Too few groups of a batch will have a learning signal.

    What it sees:
        The expected share of groups with both correct and incorrect responses. For groups of up to
        --samples responses, the check averages over all subsets of the sampled responses. For
        larger groups it uses a beta distribution fitted to the prompts' pass rates. The share times
        the prompts of a batch is the number of groups from which a step learns. The 90% interval
        covers the choice of prompts and the sampling of responses.

    Why it matters:
        The other groups cost the same compute and contribute no gradient. The gradient of a step
        that uses only a few groups is mostly noise.

    What to do:
        Choose the group size with the most informative groups for the same number of responses,
        filter the prompts, or use dynamic sampling.

    When it is wrong:
        Graded rewards have variance even in groups of wrong responses. Pass rates change as the
        model learns. For groups larger than --samples the fit can be off if the rates do not follow
        a beta distribution: if half of the prompts are never solved and the other half is solved by
        every second response, eight samples each suggest a share of 62% for groups of 16, where the
        truth is 50%. Raise --samples then.

    References:
        DAPO, arXiv 2503.14476; the beta-binomial is textbook statistics.
    """

    code: ClassVar[str] = "GRP102"
    name: ClassVar[str] = "too-few-informative-groups"
    former_names: ClassVar[tuple[str, ...]] = ("group-size",)
    summary: ClassVar[str] = "Too few groups of a batch will have a learning signal."
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)
    min_informative_share: ClassVar[float] = 0.5
    """Share of groups below which half of the compute is lost."""
    min_informative_groups: ClassVar[float] = 16.0
    """Minimum of informative groups per step: with fewer, the standard error of a token's mean
    advantage is above a quarter of its standard deviation."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Estimate the number of informative groups."""
        solved = context.sampler.solved() if context.sampler and context.reward else None
        if solved is None:
            return requires_rewarded_responses(context)
        settings = context.settings
        share = signal_rate(solved, settings.group_size)
        groups = share * settings.batch_prompts
        low, high = signal_rate_interval(solved, settings.group_size, seed=settings.seed)
        severity: Severity = (
            "warning"
            if share < self.min_informative_share or groups < self.min_informative_groups
            else "info"
        )
        summary = (
            f"{groups:.0f} of {settings.batch_prompts} groups of {settings.group_size} "
            f"({share:.0%}; {low:.0%} to {high:.0%}) should have both correct and incorrect "
            "responses."
        )
        advice = ("Choose a size from the table, filter prompts, or sample dynamically (DAPO).",)
        figures = {
            "share": share,
            "share_low": low,
            "share_high": high,
            "zero_variance": 1 - share,
            "groups": groups,
        }
        table = tuple(_table(solved, settings))
        return (
            CheckFinding(
                severity, summary, advice if severity == "warning" else (), table, figures
            ),
        )


def _table(solved: NDArray[np.bool_], settings: RunSettings) -> list[str]:
    """Informative groups by group size, for the same number of responses."""
    budget = settings.group_size * settings.batch_prompts
    lines = []
    for size in _SIZES:
        if size <= budget:
            share, prompts = signal_rate(solved, size), budget // size
            suffix = " (fitted)" if size > solved.shape[1] else ""
            lines.append(
                f"{prompts} groups of {size}: {share:.0%} informative, "
                f"{share * prompts:.0f} groups{suffix}"
            )
    return lines

"""DAT007."""

from __future__ import annotations

import statistics
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import RECENT, first_step_where
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.values import Rate

_REPEATED = "groups/repeated_prompt_rate"


class RepeatedPrompts(Rule):
    """Most groups of a batch repeat the prompt of another group.

    What it sees:
        The share of the groups of a batch that repeat the prompt of an earlier group of the same
        batch. One prompt in all groups is a warning, unless the reward rises; a share is a note.

    Why it matters:
        A shuffled data set is drawn without replacement, so a batch has each prompt once. Repeats
        are a placeholder of the template that is not filled in, a column that is constant, a data
        set with fewer rows than a batch has groups, or a sampler that draws the same rows again.
        The batch then has the information of its different prompts only, and the policy learns
        the answers to these few.

    Evidence it needs:
        `groups/repeated_prompt_rate`, from a live hook (TRL, verl, SkyRL, slime, your own
        loop), from a rollout dump whose groups have ids of their own, or from TRL's completions
        with their advantages. A hook does not measure it if images or environments belong to the
        prompts, because equal prompts may then pose different tasks.

    Remedies:
        Print five prompts as the sampler receives them. Count the different prompts of the data set
        after filtering.

    When it is wrong:
        One prompt or a few are repeated on purpose, to test a setup or for training with a single
        example. Such a run learns, so the finding is a note.

    References:
        Wang et al. 2025, Reinforcement Learning for Reasoning in Large Language Models with One
        Training Example, arXiv 2504.20571, for single prompts that are repeated on purpose.
    """

    code: ClassVar[str] = "DAT007"
    name: ClassVar[str] = "repeated-prompts"
    condition: ClassVar[Condition] = "repeated-prompts"
    summary: ClassVar[str] = "Most groups of a batch repeat the prompt of another group."
    inputs: ClassVar[tuple[Need, ...]] = (_REPEATED,)
    remedies: ClassVar[tuple[str, ...]] = ("check-prompts",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2504.20571",)
    persistence: ClassVar[int] = 1
    """The rule itself asks for several batches."""
    clearance: ClassVar[int] = RECENT
    judged_by_outcome: ClassVar[bool] = True

    min_groups: int = 4
    """Groups of a batch: of two or three groups, the end of an epoch may repeat most."""
    min_share: float = 0.5
    """Share of the groups. Drawn with replacement from as many prompts as the batch has groups, 1/e
    of them are repeats on average; drawn without it, none are, except where two epochs meet."""
    readings: int = 5
    """Latest batches, in each of which the share is as high: two epochs do not meet in five batches
    in a row unless each batch has a whole epoch."""

    def examine(self, chart: Chart) -> RuleResult:
        """Judge the latest batches."""
        series, reading = chart.series(_REPEATED), chart.reading(_REPEATED)
        if not series.last >= self.min_share:
            return None  # the usual case
        shares = series.tail(self.readings)
        count = reading.count if isinstance(reading, Rate) else 0
        if len(shares) < self.readings or count < self.min_groups:
            return None
        if not min(shares) >= self.min_share:
            return None
        is_one = isinstance(reading, Rate) and reading.hits == count - 1
        severity: Severity = "warning" if is_one else "info"
        text = f"{statistics.fmean(shares):.0%} of the groups of a batch repeat a prompt of it."
        if is_one:
            text = f"All {count} groups of a batch have the same prompt."
        onset = partial(first_step_where, series, lambda share: share >= self.min_share)
        evidence = cite_all(chart, _REPEATED, "reward/mean")
        return Sighting(severity, text, evidence, find_onset=onset)

"""REW012."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import (
    RECENT,
    ZERO_VARIANCE_METRICS,
    first_step_where,
    reading_noise,
    zero_variance_metric,
)
from grpodoctor.rules.shared.shapes.trend import change
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_ENTROPY = "entropy/mean"
_REWARD = "reward/mean"
_ACCURACY = "accuracy/train"


class RandomResponsesRewarded(Rule):
    """Nearly every response earns the same high reward, but the policy is more random than before.

    What it sees:
        A reward that rose until most groups have no variance, and an entropy that rose with it and
        is still not below its start.

    Why it matters:
        A policy that solves its prompts becomes certain of the answers, so entropy falls. If nearly
        everything earns the full reward while entropy rises, almost any response satisfies the
        reward function: its sign is wrong, it compares with the wrong answer, or it accepts
        everything. The curve of the reward looks like success.

    Evidence it needs:
        `reward/mean`, `entropy/mean` and `groups/zero_variance_rate`.

    Remedies:
        Score a known correct and a known incorrect answer by the reward function. Evaluate on
        held-out prompts by another judge.

    When it is wrong:
        An entropy bonus, or tasks for which diverse responses are correct, such as style or
        diversity rewards.

    References:
        Gao et al. 2022, Scaling Laws for Reward Model Overoptimization, arXiv 2210.10760.
    """

    code: ClassVar[str] = "REW012"
    name: ClassVar[str] = "random-responses-rewarded"
    condition: ClassVar[Condition] = "wrong-reward"
    summary: ClassVar[str] = "Nearly every response is rewarded while entropy rises."
    inputs: ClassVar[tuple[Need, ...]] = (_REWARD, _ENTROPY, ZERO_VARIANCE_METRICS)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2210.10760",)
    persistence: ClassVar[int] = 5
    clearance: ClassVar[int] = 50
    judges_levels: ClassVar[bool] = True

    min_equal: float = 0.5
    """Share of groups without variance: of eight responses to a prompt, nine in ten then earn the
    same."""
    min_rise: float = 2.0
    """Standard errors by which the reward must have risen: equal rewards show that it is high."""
    entropy_factor: float = 1.25
    """Multiple of the first entropy that must have been reached. With an inverted reward it was 1.4
    to 1.7; runs that solve their prompts stay below .9."""
    min_noises: float = 4.0
    """Multiple of the noise of one reading by which the entropy must have risen. The start is the
    median of three readings, and the top is the best of many levels: about five standard errors."""
    min_readings: int = 20
    """Minimum readings: before, the current level overlaps with the start."""

    def examine(self, chart: Chart) -> RuleResult:
        """Require equal rewards at a risen level, and a risen entropy."""
        reward, entropy = chart.series(_REWARD), chart.series(_ENTROPY)
        groups = zero_variance_metric(chart)
        if groups is None or len(reward) < self.min_readings or len(chart.series(_ACCURACY)):
            return None  # with an accuracy, REW005 compares it with the reward
        equal = chart.series(groups).level(RECENT)
        if equal < self.min_equal or entropy.opening is None or entropy.highest is None:
            return None
        start, top = entropy.opening.level, entropy.highest.level
        if not (start > 0 and top >= self.entropy_factor * start):
            return None
        if not top - start > self.min_noises * reading_noise(entropy):
            return None
        rise, error = change(reward)
        if not rise > self.min_rise * error or entropy.level(RECENT) < start:
            return None
        text = (
            f"{equal:.0%} of groups earn equal, high rewards, "
            f"but entropy rose from {start:.2g} to {top:.2g}."
        )
        names = (_REWARD, _ENTROPY, groups)
        middle = (start + top) / 2
        onset = partial(first_step_where, entropy, lambda value: value >= middle)
        return Sighting("warning", text, cite_all(chart, *names), find_onset=onset)

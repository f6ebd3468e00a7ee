"""REW013."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.trend import start_level
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_REWARD = "reward/mean"
_LENGTH = "length/mean"
_TRUNCATED = "length/truncated_rate"


class RewardIsLength(Rule):
    """The reward follows the length of the responses, from one step to the next.

    What it sees:
        The changes of the mean reward and of the mean length from step to step, over the latest
        readings. Their correlation is near 1 or -1, and the length has changed.

    Why it matters:
        The reward function pays for tokens, or for their absence, and for little else. The policy
        learns to write long or short responses; the reward rises as in any good run.

    Evidence it needs:
        `reward/mean` and `length/mean`.

    Remedies:
        Check the reward function and the weight of its length term.

    When it is wrong:
        In a task whose answer is a length, the two move together as well. Truncated responses are
        long and earn nothing, so the rule ignores a negative correlation while responses are
        truncated.

    References:
        Singhal et al. 2023, A Long Way to Go, arXiv 2310.03716.
    """

    code: ClassVar[str] = "REW013"
    name: ClassVar[str] = "reward-is-length"
    condition: ClassVar[Condition] = "wrong-reward"
    explains: ClassVar[tuple[Condition, ...]] = (
        "length-growth",
        "length-loss",
        "truncation",
        "repetition",
    )
    summary: ClassVar[str] = "The reward follows the length of the responses."
    inputs: ClassVar[tuple[Need, ...]] = (_REWARD, _LENGTH)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2310.03716",)
    persistence: ClassVar[int] = 3
    clearance: ClassVar[int] = 10
    cadence: ClassVar[int] = 5

    readings: int = 30
    """Latest readings that are compared."""
    min_correlation: float = 0.99
    """Correlation of the changes: length then explains 98 % of their variance. In healthy agentic
    runs, where failed episodes are the long ones, it is up to -.98."""
    min_truncated: float = 0.05
    """Share of truncated responses that explains why the reward falls with the length."""
    min_change: float = 1.25
    """Factor by which the length must have moved: a reward may follow a length that it does not
    drive."""

    def examine(self, chart: Chart) -> RuleResult:
        """Correlate the changes from step to step, not the trends: two trends always correlate."""
        length, start = chart.series(_LENGTH), start_level(chart.series(_LENGTH))
        if len(length) < self.readings or not start or start <= 0:
            return None
        level = length.level(self.readings // 3)
        if max(level, start) < self.min_change * min(level, start):
            return None
        found = self._correlation(chart)
        truncated = chart.series(_TRUNCATED)
        if found < 0 and len(truncated) and truncated.level(self.readings) >= self.min_truncated:
            return None  # a truncated response is the longest and earns nothing
        if not abs(found) >= self.min_correlation:
            return None
        text = (
            f"The reward follows the length (correlation {found:.2f}), "
            f"which went from {start:.3g} to {level:.3g} tokens."
        )
        return Sighting("warning", text, cite_all(chart, _REWARD, _LENGTH))

    def _correlation(self, chart: Chart) -> float:
        lengths, rewards = dict(chart.series(_LENGTH)), dict(chart.series(_REWARD))
        steps = sorted(lengths.keys() & rewards.keys())[-self.readings :]
        columns = [[series[step] for step in steps] for series in (lengths, rewards)]
        moves = [[after - before for before, after in pairwise(column)] for column in columns]
        if len(steps) < self.readings or not all(map(math.isfinite, (*moves[0], *moves[1]))):
            return math.nan
        if any(min(column) == max(column) for column in moves):
            return math.nan
        return statistics.correlation(*moves)

"""REW019."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import ClassVar

from grpodoctor.rules.base import RECOVERED, Need, Rule, RuleResult, Severity, Sighting, cite
from grpodoctor.rules.shared.health.run_health import current_metric
from grpodoctor.rules.shared.shapes.outages import (
    BESIDE_TREND,
    FULL_SHARE,
    SAME_REWARD,
    counting_noise,
    outages_beside_trend,
)
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.estimators import step_noise
from grpodoctor.runs.series import WINDOW
from grpodoctor.vocabulary.conditions import Condition

_OUTCOMES = ("accuracy/train", "reward/mean")
_ZERO_VARIANCE = "groups/zero_variance_rate"


class RewardOutages(Rule):
    """Some batches earn next to nothing, while the batches before and after earn as usual.

    What it sees:
        Batches in which no response earns anything, or whose mean reward is below a seventh of the
        usual one, between batches that all earn at least half of it. Where the reward is exactly 0,
        a quarter suffices for the others. The finding is a warning from two outages on, and `info`
        after one. In a run that rises or falls, each batch is compared with those around it, and
        three outages are a warning if chance gives them once in a million runs at most.

    Why it matters:
        A policy does not forget everything in one step and remember it a few steps later. The
        judge, the verifier or the environment failed and returned 0, for all responses or for those
        that were scored during the failure. Groups with equal rewards have
        no gradient, so these steps are lost; if an outage ends in the middle of a batch, good
        responses are punished.

    Evidence it needs:
        `accuracy/train` or `reward/mean`, above zero in batches without an outage.

    Remedies:
        Let the reward function raise or return nothing when its service fails, and leave these
        responses out of the batch. Look into the judge's log at the named step.

    When it is wrong:
        A curriculum that alternates between easy and impossible prompts, or batches of so few
        responses that all of them fail by chance: their rewards vary too much for this rule. If the
        zero-variance groups show that each batch is one group, a prompt that is too hard is no
        outage. Readings of two values alone may each be the outcome of one episode; failures that
        are spread as chance spreads them have no finding then. A policy that seldom succeeds earns
        little in the batches between, too, and has no finding. Negative rewards that differ are
        penalties, and no outage.

    References:
        TRL documentation of custom reward functions, which may return None.
    """

    code: ClassVar[str] = "REW019"
    name: ClassVar[str] = "reward-outages"
    condition: ClassVar[Condition] = "tool-failures"
    explains: ClassVar[tuple[Condition, ...]] = (
        "reward-loss",
        "environment-change",
        "equal-rewards",
        "constant-reward",
        "zero-gradient",
        "noisy-reward",
    )
    summary: ClassVar[str] = "Some batches earn next to nothing; the others earn as usual."
    inputs: ClassVar[tuple[Need, ...]] = (_OUTCOMES,)
    remedies: ClassVar[tuple[str, ...]] = ("drop-failed-rollouts", "recheck-reward")
    references: ClassVar[tuple[str, ...]] = ("huggingface.co/docs/trl/grpo_trainer",)
    persistence: ClassVar[int] = 1
    """The rule itself compares many readings."""
    clearance: ClassVar[int] = WINDOW

    min_alive: int = 10
    """Readings that earn something."""
    min_dead: int = 3
    """Readings without any reward."""
    max_dead: float = 0.5
    """Share of readings without any reward, above which earning is the exception."""
    low_share: float = 0.15
    """Share of the usual reward below which a batch is an outage if all others earn half of it or
    more: such batches are three to seven times as far apart as the others are from each other."""
    full_share: float = FULL_SHARE
    """Share of the usual reward that every other batch then earns at least."""
    least_share: float = 0.25
    """Share of the usual reward that every other batch earns at least: the outages are apart."""
    min_noises: float = 6.0
    """The usual reward in noises of one reading, as in REW014. Rewards of 0 and 1 with so little
    noise are those of 36 (1 - p) / p responses and more. At a pass rate p of .5, all of them fail
    once in 10^11 batches, at .9 once in 10^4, and three such batches once in 10^12."""
    many_outages: int = 5
    """Outages of which chance makes fewer: the same distance counts once for each of them."""
    min_noises_of_many: float = 4.5
    """The usual reward in noises of one reading for so many: a normal reading is that low once in
    3e5 batches, and five of a hundred once in 10^19 runs."""
    fewer_periods: float = 4.0
    """Standard deviations by which failures lie in fewer periods than chance gives them: once in
    3e4 readings, since each reading of a run is tested."""
    same_reward: float = SAME_REWARD
    """Share of the usual reward by which two rewards differ at least; less is rounding."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look for readings of 0 between readings near the usual level."""
        name = current_metric(chart, _OUTCOMES)
        series = chart.series(name)
        # The usual reward is at most the highest one, so most runs need no median.
        if series.window_min() > max(BESIDE_TREND * series.window_max(), 0.0):
            return None
        if self._is_one_group(chart, name, self.least_share * series.level(WINDOW)):
            return RECOVERED  # also if early batches had no equal group to show it
        if self._are_single_outcomes(series.tail(WINDOW)):
            return RECOVERED
        return self._around_one_level(chart, name) or self._beside_trend(chart, name)

    def _beside_trend(self, chart: Chart, name: str) -> Sighting | None:
        """Outages of a reward that rises or falls, so that they have no common limit."""
        series = chart.series(name)
        values = series.tail(WINDOW)
        outages = outages_beside_trend(values)
        if outages is None or outages.periods < self.min_dead:
            return None
        highest = max(values[index] for index in outages.indices)
        if self._is_one_group(chart, name, highest):
            return None
        step = series.steps(WINDOW)[outages.indices[0]]
        share = f"{len(outages.indices)} of {len(values)} batches ({outages.periods} outages)"
        text = f"The mean reward is below a quarter of its usual level in {share}."
        return Sighting("warning", text, (cite(chart, name),), find_onset=lambda: step)

    def _around_one_level(self, chart: Chart, name: str) -> Sighting | None:
        series = chart.series(name)
        values = series.tail(WINDOW)
        limit = self._limit(values)
        dead = sum(value <= limit for value in values)
        if not self.min_dead <= dead <= self.max_dead * len(values):
            return None
        alive = [value for value in values if value > limit and math.isfinite(value)]
        if len(alive) < self.min_alive:
            return None
        usual = statistics.median(alive)
        if not min(alive) >= (self.full_share if limit else self.least_share) * usual > 0:
            return None
        if self._are_penalties([value for value in values if value <= limit], usual):
            return None
        if self._is_one_group(chart, name, limit):
            return None
        runs = [low for low, _ in itertools.groupby(values, key=lambda value: value <= limit)]
        outages = sum(runs[1:-1])  # between batches that earn
        if not outages:
            return None
        noises = self.min_noises if outages < self.many_outages else self.min_noises_of_many
        if usual < noises * max(step_noise(alive), counting_noise(alive, usual)):
            return None
        if not statistics.median(self._around(values, limit)) >= self.full_share * usual:
            return None  # rare successes at the start of a run that learned since
        readings = zip(series.steps(WINDOW), values, strict=True)
        step = next(at for at, value in readings if value <= limit)
        severity: Severity = "warning" if outages > 1 else "info"
        times = f"{outages} outages" if outages > 1 else "one outage"
        share = f"{dead} of {len(values)} batches ({times})"
        what = f"The mean reward is below {limit:.2g}" if limit else "Every reward is 0"
        text = f"{what} in {share}; the others earn {usual:.2g}."
        return Sighting(severity, text, (cite(chart, name, usual),), find_onset=lambda: step)

    def _around(self, values: Sequence[float], limit: float) -> list[float]:
        """The readings that earn something from before the first low reading to after the last."""
        low = [index for index, value in enumerate(values) if value <= limit]
        span = values[max(0, low[0] - 1) : low[-1] + 2]
        return [value for value in span if value > limit and math.isfinite(value)]

    def _are_penalties(self, low: Sequence[float], usual: float) -> bool:
        """Whether the low rewards are far below zero and differ: they were graded."""
        return min(low) < -self.low_share * usual and max(low) - min(low) > self.same_reward * usual

    def _are_single_outcomes(self, values: Sequence[float]) -> bool:
        """Whether each reading may be the outcome of one response or episode.

        All readings are then one of two values, and failures come in as many periods as chance
        gives them. The batches of a failure of the environment lie together in fewer.
        """
        if len(set(values)) != 2:
            return False
        failure = min(values)
        failed = [value == failure for value in values]
        total, failures = len(values), sum(failed)
        successes = total - failures
        periods = sum(low for low, _ in itertools.groupby(failed))
        # Mean and variance of the number of runs of one kind among two kinds in random order.
        mean = failures * (successes + 1) / total
        variance = mean * (failures - 1) * successes / (total * (total - 1))
        return periods >= mean - self.fewer_periods * math.sqrt(variance)

    def _is_one_group(self, chart: Chart, name: str, limit: float) -> bool:
        """Whether each batch is one group, so that a prompt that is too hard earns 0 alone.

        The share of zero-variance groups is then 0 or 1, and both occur in batches that earn.
        """
        rewards, shares = chart.series(name), chart.series(_ZERO_VARIANCE)
        earning = {
            step
            for step, value in zip(rewards.steps(WINDOW), rewards.tail(WINDOW), strict=True)
            if value > limit
        }
        readings = zip(shares.steps(WINDOW), shares.tail(WINDOW), strict=True)
        return {share for step, share in readings if step in earning} == {0.0, 1.0}

    def _limit(self, values: Sequence[float]) -> float:
        """The highest reward of an outage: 0 if its batches earn exactly 0, or less.

        A few responses may be scored in an outage, so that its batches earn next to nothing.
        """
        limit = self.low_share * statistics.median(values)
        if min(values) < 0 or (
            min(values) == 0 and not any(0 < value <= limit for value in values)
        ):
            return 0.0
        return limit

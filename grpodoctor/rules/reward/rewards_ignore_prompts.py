"""REW018."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import NOT_LOGGED, Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.groups.exact_shares import (
    EQUAL_SHARES,
    SUCCESSES,
    BatchShape,
    batch_shape,
    denominator,
    equal_shares,
    shares_metric,
    success_metric,
)
from grpodoctor.rules.shared.health.reward_components import is_sum
from grpodoctor.rules.shared.health.run_health import has_improved, is_near_ceiling
from grpodoctor.rules.shared.shapes.trend import change, has_risen
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW
from grpodoctor.support.numbers import part_of
from grpodoctor.vocabulary.conditions import Condition

_HELD_OUT = ("reward/heldout", "accuracy/heldout")
_SAME = 0.02
"""Fall of the mean reward that counts as none: the means of few batches scatter by more."""
_STRIDE = 5
"""Readings between the steps at which a change is looked for."""


class RewardsIgnorePrompts(Rule):
    """Rewards of 0 and 1 do not depend on the prompt, and do not rise: they look like coin tosses.

    What it sees:
        Zero-variance groups as rare as among independent coin tosses with the same share of
        successes, over fifty readings or more, in a run whose reward has not risen. Prompts that
        differ in difficulty have more: the easy ones are all-correct, the hard ones all-incorrect.
        The same since some step, over twenty readings or more, whatever the reward did: prompts
        differed in the readings before it, and the reward is as high as then.

    Why it matters:
        A verdict that is the same for easy and for hard prompts does not judge the response. The
        labels are flipped at random, rewards reach the wrong responses, or a judge guesses. The
        gradient is then noise, and the run spends compute without learning.

    Evidence it needs:
        `reward/mean` with all its digits, of rewards that are 0 or 1, or `accuracy/train`, and
        `groups/zero_variance_rate` or `groups/effective_rate`. The size of a batch and of a group,
        from the config or as these two imply it.

    Remedies:
        Score the same responses twice, score known answers, and compare the order of rewards with
        that of the responses.

    When it is wrong:
        All prompts are equally difficult, as in one environment with one starting state, and the
        run is flat for another reason, such as updates that are too small (OPT005). Where
        zero-variance groups are left out of the batch, no comparison is possible.

    References:
        Skellam 1948, A probability distribution derived from the binomial distribution by regarding
        the probability of success as variable between the sets of trials.
    """

    code: ClassVar[str] = "REW018"
    name: ClassVar[str] = "rewards-ignore-prompts"
    condition: ClassVar[Condition] = "noisy-reward"
    explains: ClassVar[tuple[Condition, ...]] = ("undersized-updates",)
    summary: ClassVar[str] = "The rewards look like coin tosses: prompts do not differ in success."
    inputs: ClassVar[tuple[Need, ...]] = (SUCCESSES, EQUAL_SHARES)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward",)
    references: ClassVar[tuple[str, ...]] = ("doi.org/10.1111/j.2517-6161.1948.tb00014.x",)
    persistence: ClassVar[int] = 2
    clearance: ClassVar[int] = 4
    cadence: ClassVar[int] = 10

    min_readings: int = 50
    """Readings without a rise."""
    correlation: float = 0.05
    """Correlation of the rewards of a group that is excluded. The built-in tasks have .03 to .2,
    although their prompts are made alike."""
    min_fall_errors: float = 3.0
    """Standard errors of a fall that coin tosses do not show."""
    chance: float = 0.01
    """Probability of so few zero-variance groups at that correlation, and smallest one of so few
    without any: groups that are filtered out are missing altogether."""

    halves: int = 20
    """Readings before and after a change that are compared."""
    least_before: float = 5.0
    """Standard errors by which prompts differed before: each test is made at many steps."""
    least_after: float = 4.0
    """Standard errors by which they differ by less than `part` of that now."""
    part: float = 2 / 3
    """Part of the correlation within groups that a policy which improves may have lost."""
    most_mean: float = 0.975
    """Mean reward above which a group of eight has less than one failure in five."""
    most_after: float = 2.0
    """Standard errors up to which the groups are those of coin tosses."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the zero-variance groups with those of prompts that differ a little."""
        if is_sum(chart):  # faster than to find out the shape
            return NOT_LOGGED
        shape = batch_shape(chart)
        if shape is None:
            return NOT_LOGGED
        return self._from_the_start(chart, shape) or self._from_a_step(chart, shape)

    def _from_a_step(self, chart: Chart, shape: BatchShape) -> Sighting | None:
        """Prompts that differed until a step, and do not since, at the same reward or a higher one.

        A policy that improves makes the easy prompts all-correct, and so keeps the groups alike.
        """
        name = success_metric(chart)
        reward = chart.series(name)
        flat, means = equal_shares(chart), reward.tail(WINDOW)
        count = min(len(flat), len(means))
        if count < 2 * self.halves or not _are_binary(means[-count:], shape):
            return None
        flat, means = flat[-count:], means[-count:]
        now = _Groups(flat[-self.halves :], means[-self.halves :], shape)
        # Where hardly any response fails, a group has one failure at most, whatever the prompts.
        if now.mean >= self.most_mean or not now.errors_above(0.0) <= self.most_after:
            return None
        for end in range(count - self.halves, self.halves - 1, -_STRIDE):
            since = _Groups(flat[end:], means[end:], shape)
            if not since.errors_above(0.0) <= self.most_after:
                return None  # the readings since then are no coin tosses
            before = _Groups(flat[end - self.halves : end], means[end - self.halves : end], shape)
            if before.errors_above(0.0) < self.least_before or since.mean < before.mean - _SAME:
                continue
            usual = before.correlation()
            if since.errors_above(self.part * usual) > -self.least_after:
                continue
            step = chart.series(shares_metric(chart)).steps(count - end)[0]
            text = (
                f"Since step {step} groups look like coin tosses: {since.share:.0%} without "
                f"variance, {since.expected(usual):.0%} if prompts differed as before."
            )
            evidence = cite_all(chart, shares_metric(chart), name)
            return Sighting("warning", text, evidence, find_onset=partial(int, step))
        return None

    def _from_the_start(self, chart: Chart, shape: BatchShape) -> Sighting | None:
        name = success_metric(chart)
        reward = chart.series(name)
        shares = equal_shares(chart)
        means = reward.tail(len(shares))
        if min(len(shares), len(means)) < self.min_readings or not _are_binary(means, shape):
            return None
        if is_near_ceiling(reward) or has_improved(chart) is not False:
            return None
        if any(has_risen(chart.series(heldout)) for heldout in _HELD_OUT):
            return None
        moved, error = change(reward)
        if moved < -self.min_fall_errors * error:
            return None  # what the policy does changes the reward
        count = len(shares) * shape.groups
        seen = round(math.fsum(shares) * shape.groups)
        alike, differing = (
            count * statistics.fmean(zero_variance_share(mean, shape.group, each) for mean in means)
            for each in (0.0, self.correlation)
        )
        if not _poisson_below(seen, differing) < self.chance <= _poisson_below(seen, alike):
            return None
        text = (
            f"Rewards look like coin tosses: {part_of(seen, count, 'groups', 'have')} "
            "no variance, and the "
            f"reward does not rise from {statistics.fmean(means):.2g}."
        )
        first_step = reward.first_step
        evidence = cite_all(chart, shares_metric(chart), name)
        return Sighting("warning", text, evidence, find_onset=lambda: first_step)


@dataclass(frozen=True, slots=True)
class _Groups:
    """The zero-variance groups of some batches of rewards of 0 and 1."""

    flat: Sequence[float]
    """Share of them, by batch."""
    means: Sequence[float]
    """Mean reward, by batch."""
    shape: BatchShape

    @property
    def share(self) -> float:
        """Share of them in all batches."""
        return statistics.fmean(self.flat)

    @property
    def mean(self) -> float:
        """Mean reward of all batches."""
        return statistics.fmean(self.means)

    def expected(self, correlation: float) -> float:
        """Their share if the rewards of a group have a correlation."""
        shares = (zero_variance_share(each, self.shape.group, correlation) for each in self.means)
        return statistics.fmean(shares)

    def errors_above(self, correlation: float) -> float:
        """Standard errors of a binomial share by which they exceed what is expected."""
        expected = self.expected(correlation)
        count = len(self.flat) * self.shape.groups
        error = math.sqrt(max(expected * (1 - expected), 1 / count) / count)
        return (self.share - expected) / error

    def correlation(self) -> float:
        """The correlation at which as many are expected as there are, by bisection."""
        low, high = 0.0, 1 - 1e-6
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (middle, high) if self.expected(middle) < self.share else (low, middle)
        return low


def _are_binary(means: list[float], shape: BatchShape) -> bool:
    """Whether all means are those of rewards of 0 and 1."""
    sizes = [denominator(mean, shape.responses) for mean in means]
    return all(size is not None and shape.responses % size == 0 for size in sizes)


def zero_variance_share(mean: float, group: int, correlation: float) -> float:
    """Expected share of groups with equal rewards, if pass rates have a beta distribution.

    Args:
        mean: mean of rewards that are 0 or 1.
        group: responses of a group.
        correlation: of two rewards of a group; 0 for independent tosses.
    """
    spread = (1 - correlation) / correlation if correlation else math.inf

    def all_alike(share: float) -> float:
        if math.isinf(spread):
            return share**group
        return math.prod((share * spread + at) / (spread + at) for at in range(group))

    return all_alike(mean) + all_alike(1 - mean)


def _poisson_below(count: int, mean: float) -> float:
    """Probability of at most `count` events if `mean` are expected (Poisson)."""
    term = total = math.exp(-mean)
    for at in range(1, count + 1):
        term *= mean / at
        total += term
    return total

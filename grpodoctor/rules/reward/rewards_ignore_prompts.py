"""REW018."""

from __future__ import annotations

import math
import statistics
from typing import ClassVar

from grpodoctor.rules.base import NOT_LOGGED, Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.exact_shares import BatchShape, batch_shape, denominator
from grpodoctor.rules.shared.run_health import has_improved, is_near_ceiling
from grpodoctor.rules.shared.trend import change, has_risen
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW
from grpodoctor.vocabulary.conditions import Condition

_REWARD, _FLAT = "reward/mean", "groups/zero_variance_rate"
_HELD_OUT = ("reward/heldout", "accuracy/heldout")


class RewardsIgnorePrompts(Rule):
    """Rewards of 0 and 1 do not depend on the prompt, and do not rise: they look like coin tosses.

    What it sees:
        Zero-variance groups as rare as among independent coin tosses with the same share of
        successes, over fifty readings or more, in a run whose reward has not risen. Prompts that
        differ in difficulty have more: the easy ones are all-correct, the hard ones all-incorrect.

    Why it matters:
        A verdict that is the same for easy and for hard prompts does not judge the response. The
        labels are flipped at random, rewards reach the wrong responses, or a judge guesses. The
        gradient is then noise, and the run spends compute without learning.

    Evidence it needs:
        `reward/mean` with all its digits, of rewards that are 0 or 1, and
        `groups/zero_variance_rate`. The size of a batch and of a group, from the config or as these
        two imply it.

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
    inputs: ClassVar[tuple[Need, ...]] = (_REWARD, _FLAT)
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

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the zero-variance groups with those of prompts that differ a little."""
        shape, reward = batch_shape(chart), chart.series(_REWARD)
        if shape is None:
            return NOT_LOGGED
        shares = chart.series(_FLAT).tail(WINDOW)
        means = reward.tail(len(shares))
        if min(len(shares), len(means)) < self.min_readings or not _are_binary(means, shape):
            return None
        if is_near_ceiling(reward) or has_improved(chart) is not False:
            return None
        if any(has_risen(chart.series(name)) for name in _HELD_OUT):
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
            f"Rewards look like coin tosses: {seen} of {count} groups have no variance, and the "
            f"reward does not rise from {statistics.fmean(means):.2g}."
        )
        first_step = reward.first_step
        evidence = cite_all(chart, _FLAT, _REWARD)
        return Sighting("warning", text, evidence, find_onset=lambda: first_step)


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

"""Intervals and tests for runs that are paired by seed.

Two arms with the same seeds differ by the remedy and by noise. A mixed model with a random effect
of the seed gives the same interval as the t interval of the paired differences, which is used here.
With five seeds it is honest where a bootstrap of five differences is too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.95
"""Coverage of all intervals."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of paired differences."""

    mean: float
    pairs: int
    low: float | None
    """Ends of the interval; None without a spread: with one pair, or with equal differences."""
    high: float | None
    p: float | None
    """Two-sided p-value of no difference; None without a spread."""


@dataclass(frozen=True, slots=True)
class Share:
    """A number of runs out of all."""

    hits: int
    runs: int

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper-Pearson interval of the probability; 0 to 1 without runs."""
        if not self.runs:
            return 0.0, 1.0
        from scipy.stats import binomtest

        found = binomtest(self.hits, self.runs).proportion_ci(LEVEL, method="exact")
        return float(found.low), float(found.high)


def paired_difference(first: Sequence[float], second: Sequence[float]) -> Difference | None:
    """The difference `first - second` of values paired by position; None without pairs.

    Pairs that are all equal, as those of arms with the same settings, have no interval either.

    Raises:
        ValueError: if the lengths differ.
    """
    differences = [one - other for one, other in zip(first, second, strict=True)]
    count = len(differences)
    if not count:
        return None
    mean = sum(differences) / count
    if count == 1:
        return Difference(mean, 1, None, None, None)
    from scipy.stats import t

    variance = sum((each - mean) ** 2 for each in differences) / (count - 1)
    error = math.sqrt(variance / count)
    if error == 0:
        # Shares of a few hundred responses tie by chance, so equal differences are no certainty.
        return Difference(mean, count, None, None, None)
    half = float(t.ppf((1 + LEVEL) / 2, count - 1)) * error
    p = 2 * float(t.sf(abs(mean) / error, count - 1))
    return Difference(mean, count, mean - half, mean + half, p)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given: the chance of one false claim among all.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", 1979.
    """
    count, adjusted, largest = len(p_values), [0.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(count), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (count - place) * p_values[index]))
        adjusted[index] = largest
    return adjusted

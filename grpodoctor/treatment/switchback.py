"""A randomized switchback: a treatment is switched on and off in blocks by a recorded random draw.

A stage is ten blocks of equal length, five with the treatment and five without, in an order that is
drawn at random when the stage begins. If the treatment has no effect, the readings would have been
the same under any other order. The p-value is therefore the share of orders whose statistic is at
least that of the order that was drawn. It is exact whatever the trend and the autocorrelation of
the readings, and whatever the extreme at which the treatment began, because the order was drawn
afterwards.

The statistic only decides the power. It is the larger of two standardized effects: of the treatment
on the level of a metric, and of the steps under treatment so far, for metrics that follow slowly.
Both come from ranks around a linear trend, after a first-order autocorrelation is removed.

Sources: Fisher 1935, The Design of Experiments (randomization tests); Bojinov, Simchi-Levi and Zhao
2023, Management Science 69 (switchback experiments); Westfall and Young 1993, Resampling-Based
Multiple Testing (the largest statistic of several metrics).
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BLOCKS = 10
"""Blocks of a stage: 242 orders, so that a single stage can reach p = .004."""

FEWEST_CHANGES = 3
"""Changes between on and off in an order; with fewer, a trend looks like an effect."""

SAMPLED_ORDERS = 1999
"""Orders that are drawn when several stages have too many to enumerate."""

FEWEST_READINGS = 6
"""Readings of a metric that a stage needs to count: two describe the trend."""

MOST_AUTOCORRELATION = 0.95
"""Limit of the estimate; at 1, a constant level would vanish from the readings."""

Floats = NDArray[np.float64]
Readings = Sequence[tuple[int, float]]
"""Step and value, in order."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A drawn order of blocks."""

    first_step: int
    block_steps: int
    order: str
    """One character for each block: `1` with the treatment, `0` without."""

    @property
    def end(self) -> int:
        """The first step after the stage."""
        return self.first_step + self.block_steps * len(self.order)

    def block_starts(self) -> list[tuple[int, bool]]:
        """The first step of each block, and whether the treatment is on."""
        return [
            (self.first_step + number * self.block_steps, letter == "1")
            for number, letter in enumerate(self.order)
        ]

    def is_on(self, step: int) -> bool:
        """Whether the treatment is on at a step of the stage."""
        return self.order[(step - self.first_step) // self.block_steps] == "1"

    def within(self, readings: Readings) -> list[tuple[int, float]]:
        """The readings of the stage that are numbers."""
        return [
            (step, value)
            for step, value in readings
            if self.first_step <= step < self.end and not np.isnan(value)
        ]


@functools.cache
def orders() -> tuple[str, ...]:
    """All orders that can be drawn: half of the blocks on, at least `FEWEST_CHANGES` changes."""
    possible = (
        "".join("1" if number in chosen else "0" for number in range(BLOCKS))
        for chosen in map(set, itertools.combinations(range(BLOCKS), BLOCKS // 2))
    )
    return tuple(order for order in possible if _changes(order) >= FEWEST_CHANGES)


def _changes(order: str) -> int:
    return sum(one != two for one, two in itertools.pairwise(order))


def draw_stage(first_step: int, block_steps: int, source: random.Random) -> Stage:
    """A stage whose order is drawn at random."""
    return Stage(first_step, block_steps, source.choice(orders()))


@dataclass(frozen=True, slots=True)
class StageEffects:
    """Readings of one metric in one stage, without trend and autocorrelation."""

    level: Floats
    """For each order, inner product of the readings and the treatment."""
    level_norm: Floats
    slope: Floats
    """The same for the number of steps under treatment so far."""
    slope_norm: Floats
    noise: float
    """Sum of squares of the readings."""
    count: int


def p_values(metrics: Mapping[str, Readings], stages: Sequence[Stage]) -> dict[str, float]:
    """One-sided p-value of each metric being higher under treatment, corrected for their number.

    A metric with too few readings in a stage is judged by the other stages. A metric without any is
    left out, and one that is constant has a p-value of 1.

    Args:
        metrics: readings by name, with the sign that makes a rise the tested effect.
        stages: the stages so far.
    """
    rows = _compared_orders(stages)
    observed, others = {}, []
    for name, readings in metrics.items():
        statistics = _statistics(readings, stages, rows)
        if statistics is not None:
            observed[name] = statistics[0]
            others.append(statistics)
    if not others:
        return {}
    highest = np.max(others, axis=0)
    # Orders with the same statistic differ by rounding.
    return {name: float(np.mean(highest >= value - 1e-9)) for name, value in observed.items()}


def _compared_orders(stages: Sequence[Stage]) -> NDArray[np.int64]:
    """Orders to compare, one column for each stage, the drawn one first."""
    drawn = [orders().index(stage.order) for stage in stages]
    total = len(orders())
    if len(stages) == 1:
        rest = [[number] for number in range(total) if number != drawn[0]]
    else:
        # The journal gives the same p-value again. The seed does not depend on the drawn orders.
        source = np.random.default_rng([stage.first_step for stage in stages])
        rest = source.integers(total, size=(SAMPLED_ORDERS, len(stages))).tolist()
    return np.array([drawn, *rest])


def _statistics(
    readings: Readings, stages: Sequence[Stage], rows: NDArray[np.int64]
) -> Floats | None:
    """The statistic of each row of orders; None without readings."""
    parts = []
    for column, stage in enumerate(stages):
        effects = _effects(stage, stage.within(readings))
        if effects is not None:
            parts.append((effects, rows[:, column]))
    if not parts:
        return None
    noise = sum(part.noise for part, _ in parts) / sum(part.count for part, _ in parts)
    if noise <= 1e-9:
        return np.zeros(len(rows))
    level = _pooled([(part.level[order], part.level_norm[order]) for part, order in parts])
    slope = _pooled([(part.slope[order], part.slope_norm[order]) for part, order in parts])
    return np.asarray(np.maximum(level, slope) / np.sqrt(noise), dtype=np.float64)


def _pooled(parts: Sequence[tuple[Floats, Floats]]) -> Floats:
    """The standardized effect of several stages together."""
    products = np.sum([product for product, _ in parts], axis=0)
    norms = np.sum([norm for _, norm in parts], axis=0)
    return np.asarray(products / np.sqrt(np.maximum(norms, 1e-12)), dtype=np.float64)


def _effects(stage: Stage, readings: Readings) -> StageEffects | None:
    if len(readings) < FEWEST_READINGS:
        return None
    from scipy.stats import rankdata

    steps = np.array([step for step, _ in readings])
    trend = np.column_stack([np.ones(len(steps)), steps - steps.mean()])
    # Ranks around the trend: those of a steep series would be the trend alone.
    rest = _without(trend, _finite(np.array([value for _, value in readings])))
    ranks = rankdata(rest.round(12)).astype(np.float64)
    correlation = _autocorrelation(ranks, trend)
    basis, _ = np.linalg.qr(_whitened(trend, correlation))

    def cleaned(columns: Floats) -> Floats:
        white = _whitened(columns, correlation)
        return np.asarray(white - basis @ (basis.T @ white), dtype=np.float64)

    values = cleaned(ranks[:, None])[:, 0]
    on = _patterns(stage.block_steps)
    places = steps - stage.first_step
    level, slope = cleaned(on[places]), cleaned(np.cumsum(on - 0.5, axis=0)[places])
    return StageEffects(
        values @ level,
        np.sum(level**2, axis=0),
        values @ slope,
        np.sum(slope**2, axis=0),
        float(values @ values),
        len(values),
    )


@functools.cache
def _patterns(block_steps: int) -> Floats:
    """1 where the treatment is on, by step of the stage and order."""
    columns = np.array([[float(letter) for letter in order] for order in orders()])
    return np.repeat(columns, block_steps, axis=1).T


def _autocorrelation(values: Floats, trend: Floats) -> float:
    """Correlation of neighboring readings around their trend, corrected for its bias.

    Source of the correction: Kendall 1954, Biometrika 41.
    """
    rest = _without(trend, values)
    variance = float(rest @ rest)
    if variance <= 1e-9:
        return 0.0
    raw = float(rest[1:] @ rest[:-1]) / variance
    corrected = raw + (1 + 3 * raw) / len(values)
    return float(np.clip(corrected, 0.0, MOST_AUTOCORRELATION))


def _without(trend: Floats, values: Floats) -> Floats:
    """The values around their linear trend."""
    fitted = trend @ np.linalg.lstsq(trend, values, rcond=None)[0]
    return np.asarray(values - fitted, dtype=np.float64)


def _finite(values: Floats) -> Floats:
    """The values in spreads, with infinite ones beyond all others."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return np.sign(values)
    low, high = float(finite.min()), float(finite.max())
    scale = high / 2 - low / 2 or 1.0
    return np.clip((values / 2 - low / 2) / scale, -1.0, 2.0)


def _whitened(columns: Floats, correlation: float) -> Floats:
    """Columns in which noise of this autocorrelation is independent."""
    first = columns[:1] * np.sqrt(1 - correlation**2)
    return np.concatenate([first, columns[1:] - correlation * columns[:-1]])

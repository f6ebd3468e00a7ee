"""Jumps, trends and noise in simulated series of the KL."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import kendalltau

from grpodoctor.probe.run_mismatch.trend import StepMismatch, Trend, trend_of

Make = Callable[[np.random.Generator], np.ndarray]
STEPS = 20
AT = np.arange(STEPS)
PART = AT / (STEPS - 1)


def judge(values_S: np.ndarray) -> Trend:
    return trend_of([
        StepMismatch(step, 1000, float(value), 0.0, 0.0, 0.0)
        for step, value in enumerate(values_S, start=1)
    ])  # fmt: skip


def directions(make: Make, seeds: int) -> Counter[str]:
    return Counter(judge(make(np.random.default_rng(seed))).direction for seed in range(seeds))


def noise(rng: np.random.Generator, size: float, correlation: float = 0.0) -> np.ndarray:
    """Stationary noise of first order, as factors."""
    draws = rng.normal(size=STEPS + 50) * np.sqrt(1 - correlation**2)
    series = np.zeros(draws.size)
    for at in range(1, draws.size):
        series[at] = correlation * series[at - 1] + draws[at]
    return np.exp(size * series[50:])


@pytest.mark.parametrize("factor", [10, 100])
@pytest.mark.parametrize("place", [3, 10, 17])
def test_a_jump_is_found_at_its_step(place: int, factor: float) -> None:
    levels = np.where(place <= AT, 1e-4 * factor, 1e-4)
    for seed in range(20):
        trend = judge(levels * noise(np.random.default_rng(seed), 0.15))
        assert (trend.direction, trend.jump_step) == ("jumps", place + 1), seed
        assert trend.first == pytest.approx(1e-4, rel=0.3)
        assert trend.last == pytest.approx(1e-4 * factor, rel=0.3)


def test_a_level_that_drops_is_named() -> None:
    trend = judge(np.where(AT >= 12, 1e-4, 1e-2) * noise(np.random.default_rng(0), 0.1))
    assert (trend.direction, trend.jump_step) == ("drops", 13)


@pytest.mark.slow
def test_stationary_noise_is_flat() -> None:
    counts = directions(lambda rng: 1e-3 * noise(rng, 0.5), 300)
    assert counts["flat"] >= 0.97 * 300, counts
    assert counts["jumps"] + counts["drops"] <= 3, counts


@pytest.mark.slow
def test_autocorrelated_noise_seldom_has_a_trend_and_no_jump() -> None:
    def wandering(rng: np.random.Generator) -> np.ndarray:
        return 1e-3 * noise(rng, 0.5, correlation=0.8)

    counts = directions(wandering, 300)
    assert counts["jumps"] + counts["drops"] <= 6, counts
    series = (wandering(np.random.default_rng(seed)) for seed in range(300))
    by_kendall = sum(kendalltau(AT, values).pvalue < 0.01 for values in series)
    assert counts["rises"] + counts["falls"] < by_kendall / 2, (counts, by_kendall)


@pytest.mark.parametrize("place", [0, 1, 10, 18, 19])
def test_one_outlier_is_no_jump(place: int) -> None:
    def with_outlier(rng: np.random.Generator) -> np.ndarray:
        return 1e-3 * noise(rng, 0.2) * np.where(place == AT, 1000, 1)

    counts = directions(with_outlier, 60)
    assert counts["jumps"] + counts["drops"] == 0, counts
    assert counts["flat"] >= 54, counts


def test_an_excursion_that_ends_is_no_jump() -> None:
    levels = np.where((AT >= 8) & (AT < 13), 1e-2, 1e-4)
    counts = directions(lambda rng: levels * noise(rng, 0.2), 30)
    assert counts["jumps"] + counts["drops"] == 0, counts


RAMPS = {
    "linear": 0.2 + PART,
    "from nothing": 0.02 + PART,
    "quadratic": 0.02 + PART**2,
    "exponential": np.exp(4 * PART),
    "root": 0.02 + np.sqrt(PART),
    "late": 0.1 + 3 * np.maximum(0, PART - 0.5),
}


@pytest.mark.parametrize("name", RAMPS)
def test_a_ramp_is_a_trend_and_no_jump(name: str) -> None:
    counts = directions(lambda rng: 1e-3 * RAMPS[name] * noise(rng, 0.1), 40)
    assert counts["jumps"] == 0, counts
    assert counts["rises"] >= 34, counts


def test_changes_below_rounding_are_flat() -> None:
    assert judge(np.where(AT >= 10, 5e-8, 1e-13)).direction == "flat"
    assert judge(1e-9 * (1 + AT)).direction == "flat"
    assert judge(1e-6 * (1 + AT)).direction == "rises"

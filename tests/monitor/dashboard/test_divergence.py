"""Where two runs diverge: on planted differences, and not on noise."""

import numpy as np
import pytest

from grpodoctor.monitor.dashboard.divergence import BLOCK, divergence_index, divergences
from grpodoctor.monitor.dashboard.step_means import MOST_BLOCKS, RunMeans, StepMeans
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import Mean

SEEDS = range(200)


def _means(rewards: np.ndarray, responses: int = 8) -> RunMeans:
    """A run with these rewards, and responses of ten tokens."""
    collected = StepMeans()
    for step, reward in enumerate(rewards.tolist()):
        lengths = Mean.of([10.0] * responses)
        values = {"reward/mean": Mean.of([reward]), "length/mean": lengths}
        collected.observe(StepRecord(step, values))
    return collected.means()


def _reward(first: RunMeans, second: RunMeans, **options: str):
    compared = {each.metric: each for each in divergences(first, second, **options)}
    return compared["reward/mean"]


def test_noise_alone_parts_runs_no_more_often_than_the_level_allows() -> None:
    parted = sum(
        divergence_index(np.random.default_rng(seed).normal(0, 1, 300).tolist()) is not None
        for seed in SEEDS
    )
    assert parted <= 0.05 * len(SEEDS)


def test_a_trend_that_both_runs_share_parts_nothing() -> None:
    noise = np.random.default_rng(0)
    trend = np.linspace(0, 5, 200)
    one, other = (trend + noise.normal(0, 0.2, 200) for _ in range(2))
    assert divergence_index((one - other).tolist()) is None


@pytest.mark.parametrize("at", [40, 123])
def test_a_planted_difference_is_dated_to_its_block(at: int) -> None:
    for seed in range(20):
        noise = np.random.default_rng(seed)
        one, other = noise.normal(0.5, 0.05, 300), noise.normal(0.5, 0.05, 300)
        other[at:] -= 0.3
        found = _reward(_means(one), _means(other)).at
        assert found is not None
        assert abs(found - at) <= BLOCK


def test_runs_with_one_seed_part_at_their_first_different_reading() -> None:
    one = np.random.default_rng(1).normal(0.5, 0.1, 120)
    other = one.copy()
    other[70:] -= 0.4
    parted = _reward(_means(one), _means(other))
    assert parted.at == 70
    assert parted.equal_until == 69


@pytest.mark.slow
def test_noise_after_an_equal_beginning_is_still_noise() -> None:
    for seed in range(20):
        noise = np.random.default_rng(seed)
        one = noise.normal(0.5, 0.1, 300)
        other = np.concatenate([one[:150], noise.normal(0.5, 0.1, 150)])
        assert _reward(_means(one), _means(other)).at is None


def test_equal_runs_do_not_part() -> None:
    one = np.random.default_rng(2).normal(0.5, 0.1, 100)
    assert _reward(_means(one), _means(one)).at is None


def test_a_long_run_is_compared_with_a_short_one() -> None:
    noise = np.random.default_rng(3)
    long, short = noise.normal(0.5, 0.02, 6000), noise.normal(0.5, 0.02, 3000)
    short[1000:] += 0.2
    means = _means(long)
    assert len(means.series["reward/mean"].blocks) <= MOST_BLOCKS
    found = _reward(means, _means(short)).at
    assert found is not None
    assert 700 <= found <= 1200


def test_runs_are_aligned_by_the_tokens_that_they_generated() -> None:
    noise = np.random.default_rng(4)
    curve = np.linspace(0, 1, 200)
    slow = curve + noise.normal(0, 0.01, 200)
    fast = curve[::2] + noise.normal(0, 0.01, 100)  # twice the tokens at each step
    one, other = _means(slow, responses=8), _means(fast, responses=16)
    assert _reward(one, other, axis="step").at is not None
    assert _reward(one, other, axis="tokens").at is None


def test_a_run_that_goes_back_replaces_what_followed() -> None:
    collected = StepMeans()
    for step in [*range(10), *range(5, 10)]:
        value = 1.0 if step < 5 else 2.0
        collected.observe(StepRecord(step, {"reward/mean": Mean.of([value])}))
    series = collected.means().series["reward/mean"]
    assert series.steps == tuple(range(10))
    assert series.means == (1.0,) * 5 + (2.0,) * 5

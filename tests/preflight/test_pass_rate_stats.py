"""Estimates from pass rates, against what they must be."""

import numpy as np
import pytest
from scipy.special import comb

from grpodoctor.preflight.sampling.pass_rate_stats import (
    fit_beta,
    outside_rate,
    pass_at_k,
    rate_error,
    signal_rate,
    signal_rate_by_fit,
    signal_rate_interval,
)


def test_pass_at_k_is_the_unbiased_estimate() -> None:
    solved = np.zeros((3, 8), dtype=bool)
    solved[0, :2] = True
    solved[1, :] = True
    expected = np.mean([1 - comb(6, 4) / comb(8, 4), 1.0, 0.0])
    assert pass_at_k(solved, 4) == pytest.approx(expected, abs=1e-12)
    assert pass_at_k(solved, 1) == pytest.approx(solved.mean(), abs=1e-12)
    assert pass_at_k(solved, 8) == pytest.approx(2 / 3, abs=1e-12)


@pytest.mark.parametrize(("alpha", "beta"), [(2.0, 2.0), (0.5, 1.5), (4.0, 1.0)])
def test_the_fit_recovers_the_spread_of_pass_rates(alpha: float, beta: float) -> None:
    rng = np.random.default_rng(7)
    rates = rng.beta(alpha, beta, 2000)
    solved = rng.random((2000, 8)) < rates[:, None]
    found = fit_beta(solved)
    assert found[0] / sum(found) == pytest.approx(alpha / (alpha + beta), rel=0.05)
    assert sum(found) == pytest.approx(alpha + beta, rel=0.2)


def test_groups_with_variance_are_counted() -> None:
    rng = np.random.default_rng(8)
    rates = rng.beta(0.8, 1.2, 20_000)
    groups = rng.random((20_000, 6)) < rates[:, None]
    mixed = np.mean(groups.any(axis=1) & ~groups.all(axis=1))
    assert signal_rate_by_fit(0.8, 1.2, 6) == pytest.approx(mixed, abs=0.01)


def test_group_sizes_up_to_the_samples_need_no_model() -> None:
    rng = np.random.default_rng(9)
    rates = np.repeat([0.0, 0.5], 2000)  # as no beta distribution spreads them
    solved = rng.random((4000, 8)) < rates[:, None]
    for size in (2, 4, 8):
        assert signal_rate(solved, size) == pytest.approx((1 - 2 * 0.5**size) / 2, abs=0.01)
    assert signal_rate(solved, 16) == pytest.approx(0.62, abs=0.02)  # the fit
    wide = rng.random((4000, 8)) < rng.beta(0.8, 1.2, 4000)[:, None]
    assert signal_rate(wide, 32) == pytest.approx(signal_rate_by_fit(0.8, 1.2, 32), abs=0.02)


@pytest.mark.slow
def test_nine_of_ten_intervals_contain_the_share() -> None:
    rng = np.random.default_rng(10)
    truth = signal_rate_by_fit(0.5, 1.0, 8)
    held = 0
    for seed in range(100):
        solved = rng.random((64, 8)) < rng.beta(0.5, 1.0, 64)[:, None]
        low, high = signal_rate_interval(solved, 8, seed=seed)
        held += low <= truth <= high
    assert 82 <= held <= 97


def test_prompts_out_of_range_are_distinguished_from_chance() -> None:
    rng = np.random.default_rng(11)
    solved = rng.random((500, 3)) < rng.beta(8.0, 8.0, 500)[:, None]  # most rates around a half
    rates = solved.mean(axis=1)
    assert ((rates < 0.2) | (rates > 0.8)).mean() > 0.25
    assert outside_rate(*fit_beta(solved), 0.2, 0.8) < 0.1


def test_the_error_of_a_pass_rate_is_never_zero() -> None:
    rng = np.random.default_rng(12)
    draws = [(rng.random((24, 8)) < rng.beta(0.5, 0.5, 24)[:, None]) for _ in range(300)]
    spread = np.std([each.mean() for each in draws])
    assert np.median([rate_error(each) for each in draws]) == pytest.approx(spread, rel=0.1)
    assert rate_error(np.ones((24, 8), dtype=bool)) > 0.005
    assert np.isinf(rate_error(np.ones((3, 8), dtype=bool)))


@pytest.mark.parametrize("value", [False, True])
def test_equal_prompts_do_not_break_the_fit(value: bool) -> None:
    solved = np.full((16, 8), value)
    alpha, beta = fit_beta(solved)
    assert np.isfinite([alpha, beta]).all()
    assert signal_rate_by_fit(alpha, beta, 8) < 0.2

"""The doctor as a whole, on simulated runs: a small sample of `make controller-test`."""

import pytest

from tests.benchmarks.bench_treatment_test import SERIES, Effect, kept


@pytest.mark.slow
def test_treatments_without_effect_are_rarely_kept() -> None:
    results = [kept(series, Effect(), seed) for series in SERIES for seed in range(12)]
    treated = [result for result in results if result is not None]
    assert len(treated) >= 100
    # 5 % of 108 is 5.4; more than 12 happen in two of a thousand such samples.
    assert sum(was_kept for was_kept, _ in treated) <= 12


def test_large_effects_are_kept() -> None:
    results = [kept(series, Effect(3.0), seed) for series in SERIES for seed in range(3)]
    treated = [result for result in results if result is not None]
    assert sum(was_kept for was_kept, _ in treated) >= len(treated) - 2


def test_harm_is_never_kept() -> None:
    results = [kept(series, Effect(-2.0), seed) for series in SERIES for seed in range(3)]
    assert not any(result[0] for result in results if result is not None)

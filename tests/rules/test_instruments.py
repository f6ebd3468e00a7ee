from __future__ import annotations

import random
from fractions import Fraction
from functools import partial

import pytest

from grpodoctor.vocabulary.values import Max, Mean, Quantiles, Rate, Reading
from tests.rules.scenario import Curve, Patient, altered

CODE = "INS001"

run = partial(altered, count=12)


def mean(value: float, count: int = 512) -> Reading:
    return Mean(Fraction(value) * count, count)


def pair(metric: str, logged: float, dumped: Reading) -> dict[str, Curve]:
    return {metric: lambda _: mean(logged, 1), f"{metric}/recomputed": lambda _: dumped}


def test_a_log_that_says_something_else_is_found() -> None:
    finding = run(
        {
            **pair("reward/mean", 0.9, mean(0.45)),
            "reward/std/recomputed": lambda _: mean(0.49, 1),
        }
    ).finding(CODE)
    assert finding.severity == "warning"
    assert "mean reward is logged as 0.9" in finding.summary
    assert "0.45" in finding.summary
    assert (finding.evidence[0].value, finding.evidence[0].baseline) == (0.9, 0.45)


@pytest.mark.parametrize(
    "curves",
    [
        pair("reward/mean", 0.4502, mean(0.45)),
        pair("length/truncated_rate", 0.031, Rate(16, 512)),
        {
            **pair("reward/std", 0.5 * (512 / 511) ** 0.5, mean(0.5, 1)),
            "reward/mean": lambda _: mean(0.45),
        },
        {
            **pair("groups/reward_std", 0.4 * (4 / 3) ** 0.5, mean(0.4, 4000)),
            "groups/size": lambda _: mean(4, 4000),
        },
        pair("mismatch/kl_k3", 0.00102, mean(0.001, 100_000)),
    ],
    ids=["digits", "a rate of digits", "unbiased std", "unbiased std of groups", "capped terms"],
)
def test_what_agrees_is_quiet(curves: dict[str, Curve]) -> None:
    assert run(curves).findings(CODE) == []


def test_a_dump_of_a_part_of_the_batch_may_differ_by_chance() -> None:
    part = {
        **pair("reward/mean", 0.45, mean(0.6, 16)),
        "reward/std/recomputed": lambda _: mean(0.5, 1),
    }
    assert run(part).findings(CODE) == []
    lengths = Quantiles.of([100.0, 400.0] * 8)
    part = {**pair("length/mean", 300.0, mean(250.0, 16)), "length/p95": lambda _: lengths}
    assert run(part).findings(CODE) == []


def test_chance_does_not_differ_the_same_way_at_each_step() -> None:
    """Sixteen responses a step: at one of them their mean may be anything, at thirty it may not."""
    dice = random.Random(3)
    solved = [sum(dice.random() < 0.4 for _ in range(16)) / 16 for _ in range(40)]

    def reported(shift: float) -> Patient:
        curves: dict[str, Curve] = {
            "reward/mean": lambda step: mean(solved[step] + shift, 1),
            "reward/mean/recomputed": lambda step: mean(solved[step], 16),
            **pair("reward/std", 0.5, mean(0.49, 1)),
        }
        return run(curves, count=40)

    assert reported(0.0).findings(CODE) == []
    finding = reported(0.2).finding(CODE)
    assert finding.severity == "warning"
    assert "averaged over" in finding.summary
    assert finding.onset_step == 15


@pytest.mark.parametrize("seed", range(10))
def test_a_random_part_of_each_batch_is_never_a_contradiction(seed: int) -> None:
    dice = random.Random(seed)
    batches = [[float(dice.random() < 0.5) for _ in range(64)] for _ in range(150)]
    curves: dict[str, Curve] = {
        "reward/mean": lambda step: mean(sum(batches[step]) / 64, 1),
        "reward/mean/recomputed": lambda step: mean(sum(batches[step][:16]) / 16, 16),
        **pair("reward/std", 0.5, mean(0.48, 1)),
    }
    assert run(curves, count=150).findings(CODE) == []


def test_a_length_with_what_ends_it_is_the_same_length() -> None:
    curves: dict[str, Curve] = {
        **pair("length/mean", 21.0, mean(20.0, 16)),
        "length/p95/recomputed": lambda _: Quantiles.of([5.0, 35.0] * 8),
    }
    assert run(curves, count=60).findings(CODE) == []
    assert run({**curves, "length/mean": lambda _: mean(30.0, 1)}, count=60).finding(CODE)


def test_groups_that_were_filtered_before_the_log_are_explained() -> None:
    finding = run(pair("groups/zero_variance_rate", 0.0, Rate(40, 128))).finding(CODE)
    assert finding.severity == "info"
    assert "omits zero-variance groups" in finding.summary


def test_the_unbiased_spread_excuses_no_other_number() -> None:
    wrong = {**pair("reward/std", 0.8, mean(0.4, 1)), "reward/mean": lambda _: mean(0.45)}
    assert run(wrong).finding(CODE)


def failed(count: int, last: str | None) -> dict[str, Curve]:
    return {"instruments/failed_parts": lambda step: Max(count if step > 4 else 0, last)}


def test_a_failed_part_of_a_live_hook_is_named() -> None:
    patient = run(failed(2, "entropy tap: TypeError: missing argument"))
    finding = patient.finding("INS003")
    assert finding.severity == "info"
    assert finding.onset_step == 5
    assert finding.summary == (
        "2 parts of the live hook failed, last 'entropy tap'; their readings are missing."
    )


def test_a_hook_without_failures_is_quiet() -> None:
    assert run(failed(0, None)).findings("INS003") == []

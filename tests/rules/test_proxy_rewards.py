"""Rewards that rise without the task, and noise that only looks like it."""

from __future__ import annotations

import random

import pytest

from tests.rules.scenario import Curve, Patient, noisy, ramp, steps

REWARD, ACCURACY, LENGTH = "reward/mean", "accuracy/train", "length/mean"
FLAT = "groups/zero_variance_rate"


def component(name: str) -> str:
    return f"reward/component/{name}/mean"


def run(curves: dict[str, Curve], count: int = 60) -> Patient:
    return Patient(steps(count, curves))


@pytest.mark.parametrize("name", ["correctness_f", "reward_is_correct", "accuracy_reward"])
def test_a_reward_that_rises_without_correctness_is_a_warning(name: str) -> None:
    """A public run: programs that compile, .2 to .7, of which .002 are correct."""
    curves: dict[str, Curve] = {
        REWARD: noisy(ramp(0.2, 0.7, 50), 0.02, 1),
        component(name): noisy(0.001, 0.002, 2),
    }
    finding = run(curves).finding("REW010")
    assert finding.severity == "warning"
    assert name in finding.summary
    assert finding.remedies[0] == "recheck-reward"


def test_a_run_of_thirty_three_steps_is_long_enough() -> None:
    curves: dict[str, Curve] = {
        REWARD: noisy(ramp(0.2, 0.5, 33), 0.02, 6),
        component("correctness"): noisy(0.0005, 0.001, 7),
    }
    finding = run(curves, 33).finding("REW010")
    assert finding.severity == "warning"
    assert run(curves, 20).findings("REW010") == []


@pytest.mark.parametrize(
    ("name", "reward", "level"),
    [
        ("correctness", ramp(0.2, 0.7, 50), ramp(0.0, 0.3, 50)),
        ("correctness", 0.3, 0.001),
        ("correctness", ramp(0.2, 0.7, 50), 0.05),
        ("correctness", ramp(0.2, 0.7, 50), ramp(0.0, 0.012, 50)),
        ("correct_format", ramp(0.2, 0.7, 50), 0.001),
        ("length", ramp(0.2, 0.7, 50), 0.001),
    ],
    ids=["learned", "flat reward", "some success", "slow success", "a format", "a length"],
)
def test_other_components_are_quiet(name: str, reward: Curve, level: Curve) -> None:
    noise = 0.002 if level != ramp(0.0, 0.012, 50) else 0.0005
    curves: dict[str, Curve] = {
        REWARD: noisy(reward, 0.02, 3), component(name): noisy(level, noise, 4)
    }  # fmt: skip
    assert run(curves).findings("REW010") == []


def test_a_component_that_was_never_earned_is_left_to_its_rule() -> None:
    curves: dict[str, Curve] = {
        REWARD: noisy(ramp(0.2, 0.7, 50), 0.02, 5), component("correctness"): 0.0
    }  # fmt: skip
    assert run(curves).findings("REW010") == []


def shares(probability: float, seed: int, of: int = 8) -> Curve:
    """Shares of a few responses."""
    noise = random.Random(seed)
    return [sum(noise.random() < probability for _ in range(of)) / of for _ in range(200)]


@pytest.mark.parametrize("seed", range(12))
def test_shares_of_eight_responses_around_one_level_are_no_hacking(seed: int) -> None:
    """A public run: accuracy .93 from the start, whose median jumps from 1 to .875."""
    curves: dict[str, Curve] = {ACCURACY: shares(0.93, seed), REWARD: noisy(0.88, 0.06, seed)}
    assert run(curves, 120).findings("REW005") == []


def test_a_fall_that_shares_of_eight_responses_show_is_hacking() -> None:
    noise = random.Random(3)
    accuracy = [
        sum(noise.random() < (0.93 if step < 40 else 0.5) for _ in range(8)) / 8
        for step in range(120)
    ]
    curves: dict[str, Curve] = {ACCURACY: accuracy, REWARD: noisy(0.88, 0.06, 3)}
    assert run(curves, 120).findings("REW005")


def test_accuracy_and_reward_that_part_slowly_are_hacking() -> None:
    """Accuracy of .4 to .31 in 150 steps: no level lies beyond noise, but the trends do."""
    curves: dict[str, Curve] = {
        ACCURACY: noisy(ramp(0.4, 0.31, 150), 0.08, 2), REWARD: noisy(ramp(0.6, 0.85, 150), 0.05, 5)
    }  # fmt: skip
    finding = run(curves, 150).finding("REW005")
    assert finding.severity == "warning"
    assert "Over the run, accuracy fell" in finding.summary
    together = {**curves, REWARD: noisy(ramp(0.6, 0.5, 150), 0.05, 5)}
    assert run(together, 150).findings("REW005") == []
    apart = {**curves, ACCURACY: noisy(0.4, 0.06, 2)}
    assert run(apart, 150).findings("REW005") == []


def shrinking(reward: Curve, equal: float, last: float) -> dict[str, Curve]:
    return {LENGTH: noisy(ramp(100, last, 15), 1, 1, low=3), REWARD: reward, FLAT: equal}


def test_form_credit_for_nearly_empty_responses_is_a_warning() -> None:
    """A public run: 94 to 6 tokens, reward .04 to .1 of 1, half of the groups equal."""
    curves = shrinking(noisy(ramp(0.02, 0.12, 25), 0.01, 2), 0.6, 6)
    assert run(curves, 40).finding("LEN005").severity == "warning"


@pytest.mark.parametrize(
    ("reward", "equal", "last", "severities"),
    [
        (noisy(ramp(0.1, 0.9, 25), 0.02, 3), 0.6, 6, ["info"]),
        (noisy(ramp(0.02, 0.12, 25), 0.01, 4), 0.1, 6, ["info"]),
        (noisy(ramp(0.2, 2.4, 25), 0.05, 5), 0.6, 6, ["info"]),
        (noisy(ramp(0.02, 0.12, 25), 0.01, 6), 0.6, 25, []),
    ],
    ids=["solved", "groups vary", "unknown scale", "a quarter is left"],
)
def test_short_responses_that_earn_more_are_none(
    reward: Curve, equal: float, last: float, severities: list[str]
) -> None:
    findings = run(shrinking(reward, equal, last), 40).findings("LEN005")
    assert [each.severity for each in findings] == severities

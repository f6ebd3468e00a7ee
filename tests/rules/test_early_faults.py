"""Faults that theory shows within the first readings of a run."""

from __future__ import annotations

import random

import pytest

from grpodoctor.rules.reward.reward_collapse import RewardCollapse
from tests.rules.scenario import Curve, Patient, every, healthy, noisy, steps

REWARD, ACCURACY, GRADIENT = "reward/mean", "accuracy/train", "optimizer/grad_norm"
FLAT, RATIO, OFF = "groups/zero_variance_rate", "ratio/mean", "mismatch/first_ratio_off"


def dead(steps_dead: int) -> dict[str, Curve]:
    """A run whose rewards and gradients are zero for so many steps."""
    return {
        REWARD: lambda step: 0.0 if step < steps_dead else 0.3,
        GRADIENT: lambda step: 0.0 if step < steps_dead else 0.8,
        FLAT: lambda step: 1.0 if step < steps_dead else 0.3,
    }


def test_a_run_without_reward_and_gradient_is_seen_at_its_sixth_reading() -> None:
    finding = Patient(steps(6, dead(6))).finding("GRP002")
    assert (finding.severity, finding.onset_step) == ("warning", 0)
    assert "100%" in finding.summary


@pytest.mark.parametrize(
    "other",
    [{GRADIENT: 0.2}, {REWARD: [0.0, 0.1, 0.0, 0.0, 0.0, 0.0]}, {FLAT: 0.8}],
    ids=["a gradient", "one reward", "some groups vary"],
)
def test_any_signal_takes_more_readings(other: dict[str, Curve]) -> None:
    assert Patient(steps(6, {**dead(6), **other})).findings("GRP002") == []


def test_a_late_first_reward_ends_it() -> None:
    patient = Patient(steps(40, dead(8)))
    assert [each.active for each in patient.findings("GRP002")] == [False]


def broken_off(alive: int, zeros: int) -> dict[str, Curve]:
    """Rewards of a large scale that end after so many readings."""
    return {REWARD: [*(1.3, 1.1, 4.1, 2.0, 2.4)[:alive], *[0.0] * zeros]}


def test_a_reward_that_ends_after_three_readings_is_a_collapse() -> None:
    finding = Patient(steps(14, broken_off(3, 11))).finding("REW002")
    assert (finding.severity, finding.onset_step) == ("critical", 3)
    assert "exactly 0 at step 3" in finding.summary


@pytest.mark.parametrize(("alive", "zeros"), [(1, 13), (3, 9)])
def test_too_few_readings_are_no_collapse(alive: int, zeros: int) -> None:
    count = alive + zeros
    assert Patient(steps(count, broken_off(alive, zeros))).findings("REW002") == []


def test_rare_successes_hardly_ever_look_like_an_end() -> None:
    """At the share of readings above zero at which it is most likely."""
    rule, seen = RewardCollapse(), 0
    for seed in range(400):
        noise = random.Random(seed)
        rewards = [float(noise.random() < 0.3) for _ in range(30)]
        findings = Patient(steps(30, {REWARD: rewards}), rules=[rule]).findings("REW002")
        seen += any("exactly 0" in each.summary for each in findings)
    assert seen <= 3


@pytest.mark.parametrize("level", [0.7, 1.6])
def test_a_mean_ratio_that_is_not_one_is_named_within_five_readings(level: float) -> None:
    curves: dict[str, Curve] = {REWARD: 1.5, RATIO: noisy(level, 0.08, 1)}
    finding = Patient(steps(5, curves)).finding("MIS002")
    assert (finding.severity, finding.onset_step) == ("warning", 0)
    assert "instead of 1 from the start" in finding.summary


@pytest.mark.parametrize(
    "ratio",
    [
        noisy(1.0, 0.002, 2),
        noisy(0.95, 0.01, 3),
        lambda step: 0.7 if step == 2 else 1.0,
        noisy(1.0, 0.3, 4),
        lambda step: 1.0 if step < 20 else 0.8,
    ],
    ids=["healthy", "top-p", "one spike", "few tokens", "after a drift"],
)
def test_ratios_around_one_are_quiet(ratio: Curve) -> None:
    assert Patient(steps(60, {REWARD: 1.5, RATIO: ratio})).findings("MIS002") == []


def test_counted_ratios_decide_where_they_are_logged() -> None:
    curves: dict[str, Curve] = {**healthy(1), RATIO: 0.8, OFF: 0.0}
    assert Patient(steps(40, curves)).findings("MIS002") == []


def test_six_evaluations_that_fall_without_a_count_are_a_warning() -> None:
    falling = [0.02218, 0.02132, 0.02012, 0.01894, 0.01792, 0.01645]
    rising = noisy(lambda step: 0.05 + 0.1 * step / 60, 0.01, 1)
    curves: dict[str, Curve] = {
        REWARD: rising, "reward/heldout": every(10, lambda step: falling[step // 10])
    }  # fmt: skip
    finding = Patient(steps(60, curves)).finding("REW003")
    assert finding.severity == "warning"
    assert "from 0.0222 to 0.0164" in finding.summary
    assert Patient(steps(50, curves)).findings("REW003") == []


@pytest.mark.parametrize(
    ("evaluations", "rises"),
    [
        ([0.02218, 0.02132, 0.02012, 0.02021, 0.01792, 0.01645], True),
        ([0.02218, 0.02212, 0.02205, 0.02198, 0.02189, 0.02181], True),
        ([0.02218, 0.02132, 0.02012, 0.01894, 0.01792, 0.01645], False),
    ],
    ids=["one rise", "a small loss", "a reward that does not rise"],
)
def test_other_evaluations_are_quiet(evaluations: list[float], rises: bool) -> None:
    curves: dict[str, Curve] = {
        REWARD: noisy(lambda step: 0.05 + 0.1 * step / 60 * rises, 0.01, 2),
        "reward/heldout": every(10, lambda step: evaluations[step // 10]),
    }
    assert Patient(steps(60, curves)).findings("REW003") == []

"""Causes that users report: copies in whole groups, monitors, and rewards that ignore success."""

from __future__ import annotations

import random
from typing import Any

import pytest

from grpodoctor.rules.base import Finding
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import Mean, Rate
from tests.rules.scenario import Curve, Patient, noisy, ramp, steps

REWARD, EXACT, JUDGE = (
    "reward/mean",
    "reward/component/exact_match/mean",
    "reward/component/judge/mean",
)
FLAT, RIGHT, WRONG = (
    "groups/zero_variance_rate",
    "groups/all_correct_rate",
    "groups/all_incorrect_rate",
)


def greedy(copies: int, *, chance: float = 0.58, gap: float = -0.2) -> Patient:
    """A run whose samples become copies at step 20: eight groups of eight responses."""
    records = [
        StepRecord(
            step,
            {
                "groups/duplicate_rate": Rate(copies if step >= 20 else 8, 64),
                "groups/expected_duplicate_rate": Mean.of([chance if step >= 20 else 0.13]),
                "mismatch/nll_gap": Mean.of([(gap if step >= 20 else 0.0) + 0.001 * (step % 3)]),
                REWARD: Mean.of([1.0 if step >= 20 else 0.45 + 0.02 * (step % 5)]),
            },
        )
        for step in range(60)
    ]
    return Patient(records, knobs={"group_size": 8})


def test_groups_of_one_greedy_response_are_named_and_no_reward_is_blamed() -> None:
    patient = greedy(56)
    finding = patient.finding("DAT006")
    assert (finding.onset_step, finding.remedies[0]) == (20, "one-temperature")
    assert "copies of one response" in finding.summary
    assert patient.findings("REW016") == []


@pytest.mark.parametrize(("copies", "chance"), [(50, 0.58), (56, 0.82)])
def test_a_sharper_sampler_and_a_certain_policy_copy_by_chance(copies: int, chance: float) -> None:
    patient = greedy(copies, chance=chance)
    assert patient.findings("DAT006") == []
    assert patient.findings("REW016")


def judged(judge: Curve, exact: Curve, reward: Curve) -> Patient:
    return Patient(steps(60, {REWARD: reward, JUDGE: judge, EXACT: exact}))


def test_a_monitored_success_that_falls_while_the_judge_pays_is_hacking() -> None:
    rise = noisy(ramp(0.2, 0.9, 50), 0.02, 1)
    fall = noisy(ramp(0.5, 0.05, 50), 0.02, 2)
    finding = judged(rise, fall, rise).finding("REW005")
    assert finding.severity == "critical"
    assert "Component exact_match fell" in finding.summary


def test_a_success_that_is_paid_is_no_monitor() -> None:
    rise = noisy(ramp(0.2, 0.9, 50), 0.02, 1)
    fall = noisy(ramp(0.5, 0.05, 50), 0.02, 2)
    patient = judged(rise, fall, lambda step: rise(step) + 0.3 * fall(step))
    assert patient.findings("REW005") == []
    finding = patient.finding("REW010")
    assert finding.condition == "reward-hacking"
    assert finding.onset_step <= 35  # the middle of the fall


def two_judges(
    accepted: float,
    paid: float,
    *,
    names: tuple[str, str] = ("exact_match", "judge"),
    counts: tuple[int, int] = (64, 64),
    grades: int = 1,
) -> list[Finding]:
    """Notes on a monitor and a paid judge, each with its share of accepted responses.

    One accepts a part of what the other accepts. Of `counts` responses each has a verdict, and the
    judge pays in `grades` parts of 1.
    """
    generator = random.Random(3)
    monitor, judge = (f"reward/component/{name}/mean" for name in names)
    records = []
    for step in range(60):
        draws = [generator.random() for _ in range(max(counts))]
        seen = sum(draw < accepted for draw in draws[: counts[0]]) / counts[0]
        parts = [min(1.0, int(grades * paid / draw) / grades) for draw in draws[: counts[1]]]
        pay = sum(parts) / counts[1]
        values = {monitor: Mean.of([seen]), judge: Mean.of([pay]), REWARD: Mean.of([pay])}
        records.append(StepRecord(step, values))
    return Patient(records).findings("REW005")


def test_a_monitor_that_accepts_what_the_judge_rejects_is_noted() -> None:
    [finding] = two_judges(0.6, 0.3)
    assert (finding.severity, finding.condition) == ("info", "wrong-reward")
    assert "exact_match accepts 6" in finding.summary
    assert finding.summary.endswith("rejects correct ones, or the monitor is lenient.")
    [finding] = two_judges(0.3, 0.6, names=("accuracy", "judge"))
    assert finding.summary.endswith("accepts wrong ones, or the monitor is strict.")


@pytest.mark.parametrize(
    ("accepted", "paid", "options"),
    [
        pytest.param(0.6, 0.5, {}, id="verifiers that differ as usual"),
        pytest.param(0.3, 0.6, {}, id="a monitor that is strict by its name"),
        pytest.param(0.6, 0.3, {"names": ("correct", "strict_verifier")}, id="a strict judge"),
        pytest.param(0.6, 0.3, {"names": ("soft_accuracy", "judge")}, id="a lenient monitor"),
        pytest.param(0.6, 0.3, {"names": ("solved_pass@8", "judge")}, id="pass at k"),
        pytest.param(0.6, 0.3, {"names": ("accuracy", "politeness")}, id="another subject"),
        pytest.param(0.6, 0.3, {"counts": (24, 64)}, id="a monitor of one task only"),
        pytest.param(0.8, 0.2, {"grades": 3}, id="a graded reward"),
    ],
)
def test_a_monitor_of_another_kind_is_not_compared(
    accepted: float, paid: float, options: dict[str, Any]
) -> None:
    assert two_judges(accepted, paid, **options) == []


def test_another_part_that_falls_is_no_hacking() -> None:
    parts: dict[str, Curve] = {
        "reward/component/format/mean": noisy(ramp(0.2, 0.9, 50), 0.02, 1),
        "reward/component/style/mean": noisy(ramp(0.5, 0.05, 50), 0.02, 2),
        REWARD: noisy(ramp(0.7, 0.95, 50), 0.02, 3),
    }
    assert Patient(steps(60, parts)).finding("REW010").condition is None


@pytest.mark.parametrize("is_split", [True, False])
def test_equal_rewards_of_right_and_wrong_responses_are_not_excused(is_split: bool) -> None:
    curves: dict[str, Curve] = {
        FLAT: 0.95,
        REWARD: noisy(0.97, 0.01, 1),
        "accuracy/train": noisy(ramp(0.45, 0.58, 60), 0.02, 2),
    }
    if is_split:
        curves |= {RIGHT: 0.0, WRONG: 0.0}
    findings = Patient(steps(60, curves)).findings("GRP004")
    assert [each.weighs_outcome for each in findings] == [is_split] * len(findings)
    assert findings


def test_a_reward_of_zero_for_what_a_monitor_accepts_is_no_failure() -> None:
    curves: dict[str, Curve] = {
        REWARD: 0.0,
        FLAT: 1.0,
        "reward/component/accuracy_reward/mean": 0.0,
        EXACT: noisy(0.42, 0.05, 1),
    }
    patient = Patient(steps(60, curves))
    assert patient.findings("GRP002") == []
    assert "neither all correct nor all incorrect" in patient.finding("GRP004").summary
    failed = Patient(steps(60, {**curves, EXACT: 0.0}))
    assert failed.findings("GRP002")

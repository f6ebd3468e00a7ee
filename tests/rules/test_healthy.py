"""False alarms: runs that go well, and public runs that were read by a practitioner.

The latter are condensed from public logs to the curves and levels that their readings rest on.
"""

from __future__ import annotations

import random

import pytest

from tests.rules.scenario import Curve, Patient, healthy, noisy, ramp, steps
from tests.samples import sampled


@pytest.mark.parametrize("seed", sampled(range(20), 2))
def test_a_healthy_run_raises_no_alarm(seed: int) -> None:
    patient = Patient(steps(150, healthy(seed)))
    assert patient.alarms() == []


@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
def test_a_long_healthy_run_raises_no_alarm_and_does_not_flap(seed: int) -> None:
    patient = Patient(steps(1500, healthy(100 + seed)))
    assert patient.alarms() == []
    assert len(patient.changes) <= 8


@pytest.mark.parametrize("seed", range(5))
def test_a_run_with_one_update_per_batch_gets_explanations_only(seed: int) -> None:
    curves = {
        **healthy(seed),
        "clip/low_rate": 0,
        "clip/high_rate": 0,
        "updates_per_batch": 1,
        "optimizer/loss": 0,
    }
    patient = Patient(steps(60, curves))
    assert patient.alarms() == []
    found = {each.code for each in patient.engine.diagnosis().findings}
    assert found - {"REW020"} == {"CLP002", "OPT001"}  # REW020 until the rise shows


def scattered(curve: Curve, scale: float, seed: int, low: float = 0.0, high: float = 1e9) -> Curve:
    inner = noisy(curve, scale, seed, low=low)
    return lambda step: min(high, float(inner(step) or 0.0))  # type: ignore[arg-type]  # a number


def test_an_agent_run_with_low_entropy_and_high_reward() -> None:
    """Reward .13 to .91, entropy .35 to .03, three quarters of the groups wrong at first."""
    curves: dict[str, Curve] = {
        "entropy/mean": scattered(ramp(0.35, 0.031, 250), 0.02, 1, low=0.016),
        "reward/mean": scattered(ramp(0.13, 0.91, 120), 0.08, 2, high=1),
        "groups/all_incorrect_rate": scattered(ramp(0.75, 0.07, 90), 0.08, 3, high=1),
        "length/truncated_rate": scattered(ramp(0.29, 0.05, 150), 0.06, 4),
        "length/mean": scattered(ramp(3000, 1950, 200), 120, 5),
        "optimizer/grad_norm": scattered(1.0, 0.5, 6, low=0.1),
        "optimizer/loss": scattered(0.006, 0.01, 7, low=-1),
    }
    assert Patient(steps(323, curves)).alarms() == []


def test_a_solved_task_is_saturated_and_nothing_else() -> None:
    """Accuracy .68 to 1 within thirty steps, entropy .77 to 1e-4, all groups right."""
    right = scattered(ramp(0.19, 1.0, 25), 0.03, 1, high=1)
    curves: dict[str, Curve] = {
        "reward/mean": scattered(ramp(0.68, 1.0, 25), 0.01, 2, high=1),
        "entropy/mean": scattered(ramp(0.77, 0.0001, 25), 0.00001, 3),
        "groups/all_correct_rate": right,
        "groups/all_incorrect_rate": 0,
        "mismatch/kl_k1": scattered(0.0, 0.0003, 4, low=-1),
    }
    patient = Patient(steps(100, curves))
    assert patient.alarms() == []
    assert {each.code for each in patient.engine.diagnosis().findings} == {"ENT001", "GRP001"}


def test_a_run_of_old_keys_with_dead_components_and_a_single_kl_spike() -> None:
    """.18 to 1.45 in 250 steps; zero losses and gradients in the first rows; a KL of .93 once."""
    generator = random.Random(1)
    gradients = [0.0] + [generator.lognormvariate(-1.0, 0.6) for _ in range(249)]
    curves: dict[str, Curve] = {
        "reward/mean": scattered(ramp(0.1, 1.45, 200), 0.5, 2, low=-0.2),
        "reward/component/strict/mean": 0.0,
        "reward/component/soft/mean": 0.0,
        "reward/component/correct/mean": scattered(ramp(0.1, 1.2, 200), 0.4, 2),
        "kl/reference/k3": lambda step: 0.93 if step == 130 else 0.04 * step / 250,
        "optimizer/loss": lambda step: 0.0 if step < 40 else 0.0016,
        "optimizer/grad_norm": gradients,
        "length/mean": scattered(151, 20, 3),
    }
    patient = Patient(steps(250, curves))
    assert patient.alarms() == []
    assert patient.finding("REW004").severity == "info"
    skipped = {each.code: each for each in patient.engine.diagnosis().skipped}
    assert skipped["LEN002"].missing == ("length/truncated_rate",)


def test_all_zero_reward_on_nearly_every_step_is_found() -> None:
    """An agent run without a success: .9974 of the groups wrong throughout, gradients of zero."""
    lucky = {7, 19, 33}
    curves: dict[str, Curve] = {
        "reward/mean": lambda step: 1 / 128 if step in lucky else 0.0,
        "groups/all_incorrect_rate": lambda step: 0.94 if step in lucky else 1.0,
        "optimizer/grad_norm": lambda step: 0.15 if step in lucky else 0.0,
        "entropy/mean": scattered(0.0425, 0.002, 1),
    }
    patient = Patient(steps(49, curves))
    assert patient.finding("GRP002").severity == "critical"
    assert "no group varies" in patient.findings("OPT001")[0].summary
    assert patient.findings("ENT001") == patient.findings("REW002") == []

"""Rewards near 0 that are no shares of successes, and batches in which no group varies."""

from __future__ import annotations

import random

import pytest

from grpodoctor.runs.records import StepRecord
from tests.rules.scenario import Curve, Patient, steps

REWARD, STD = "reward/mean", "groups/reward_std"


def _codes(patient: Patient) -> set[str]:
    return {each.code for each in patient.engine.diagnosis().findings if each.active}


def _share(successes: float, responses: int, seed: int = 1) -> Curve:
    """The share of successes in batches of some responses, each with the same chance."""
    rng = random.Random(seed)
    chance = successes / responses
    counts = [sum(rng.random() < chance for _ in range(responses)) for _ in range(60)]
    return [count / responses for count in counts]


def _small_rewards(level: float, scatter: float) -> Curve:
    rng = random.Random(2)
    return [level * (1 + scatter * rng.uniform(-1, 1)) for _ in range(60)]


@pytest.mark.parametrize(("level", "scatter"), [(7e-4, 0.8), (7e-4, 0.1), (8e-3, 0.02)])
def test_a_mean_of_many_small_rewards_is_no_rare_success(level: float, scatter: float) -> None:
    patient = Patient(steps(60, {REWARD: _small_rewards(level, scatter)}))
    assert "GRP002" not in _codes(patient)


@pytest.mark.parametrize(("successes", "responses"), [(0.2, 64), (1.0, 512), (9.0, 1024)])
def test_a_share_of_rare_successes_is_reported(successes: float, responses: int) -> None:
    patient = Patient(steps(60, {REWARD: _share(successes, responses)}))
    assert "GRP002" in _codes(patient)


def test_a_highest_reward_of_one_shows_a_share_of_successes() -> None:
    curves: dict[str, Curve] = {REWARD: _small_rewards(7e-4, 0.8), "reward/max": 1.0}
    assert "GRP002" in _codes(Patient(steps(60, curves)))


def _averaged(
    chance: float, batches: int, reward: Curve, *, framework: str = "trl", seed: int = 3
) -> Patient:
    """Thirty readings, each a mean of batches of which some have a group that varies."""
    rng = random.Random(seed)
    varying = [sum(rng.random() < chance for _ in range(batches)) for _ in range(30)]
    curves: dict[str, Curve] = {
        REWARD: reward,
        STD: [count * 0.025 / batches for count in varying],
    }
    records = [
        StepRecord(batches * (record.step + 1), record.values) for record in steps(30, curves)
    ]
    return Patient(records, framework=framework)


def _unlike(low: float, high: float) -> Curve:
    rng = random.Random(4)
    return [rng.uniform(low, high) for _ in range(30)]


def test_readings_of_several_batches_without_spread_show_that_hardly_any_batch_has_it() -> None:
    """At .6 of the readings, each of five batches, .9 of the batches have no group that varies."""
    finding = _averaged(0.08, 5, _unlike(-0.01, 0.0)).finding("GRP004")
    assert (finding.severity, finding.active) == ("warning", True)
    assert "of 5-batch readings" in finding.summary
    assert finding.onset_step <= 50


def test_the_same_readings_of_single_batches_leave_groups_that_vary() -> None:
    patient = _averaged(0.08, 5, _unlike(-0.01, 0.0), framework="verl")
    assert {each.severity for each in patient.findings("GRP004")} <= {"info"}


def test_a_reward_that_rises_has_learned_from_few_groups() -> None:
    rising = [-0.5 + 0.08 * index for index in range(30)]
    assert "GRP004" not in _codes(_averaged(0.08, 5, rising))


def test_half_of_the_batches_may_be_equal_in_a_run_of_one_prompt_per_batch() -> None:
    patient = _averaged(0.4, 1, _unlike(1.0, 3.0))
    assert {each.severity for each in patient.findings("GRP004")} <= {"info"}

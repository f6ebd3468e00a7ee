"""ENT003, ENT004 and CLP003: groups that become alike, lost rechecks, clipped forks."""

from __future__ import annotations

import pytest

from grpodoctor.vocabulary.values import NotApplicable
from tests.rules.scenario import Curve, Patient, healthy, noisy, ramp, steps

ENTROPY, ALIKE, SPREAD = "entropy/mean", "groups/text_similarity", "groups/reward_std"
REFLECTION, REWARD = "text/reflection_rate", "reward/mean"
FORKS, PROBABILITY, HIGH = "clip/fork_token_rate", "clip/high_probability", "clip/high_rate"
FLAT: Curve = noisy(0.4, 0.05, 9)
RISING: Curve = noisy(ramp(0.3, 0.7, 60), 0.04, 9)


def run(curves: dict[str, Curve], count: int = 100) -> Patient:
    return Patient(steps(count, curves))


def alike(reward: Curve) -> dict[str, Curve]:
    return {
        ENTROPY: noisy(ramp(0.5, 0.05, 40, begin=20), 0.01, 1),
        ALIKE: noisy(ramp(0.3, 0.9, 40, begin=20), 0.02, 2),
        SPREAD: noisy(ramp(0.35, 0.08, 40, begin=20), 0.01, 3),
        REWARD: reward,
    }


def test_three_signs_at_once_are_a_warning_unless_the_reward_rose() -> None:
    finding = run(alike(FLAT)).finding("ENT003")
    assert finding.severity == "warning"
    assert finding.remedies[0] == "clip-higher"
    assert run(alike(RISING)).finding("ENT003").severity == "info"


@pytest.mark.parametrize("name", [ENTROPY, ALIKE, SPREAD])
def test_two_signs_are_not_enough(name: str) -> None:
    start = {ENTROPY: 0.5, ALIKE: 0.3, SPREAD: 0.35}[name]
    curves = {**alike(FLAT), name: noisy(start, 0.01, 5)}
    assert run(curves).findings("ENT003") == []


def test_duplicates_stand_in_for_similarity() -> None:
    curves = alike(FLAT)
    curves["groups/duplicate_rate"] = curves.pop(ALIKE)
    assert run(curves).finding("ENT003").severity == "warning"


def test_solved_prompts_have_alike_responses() -> None:
    solved = noisy(ramp(0.5, 0.99, 30), 0.003, 4)
    assert run({**alike(solved), "accuracy/train": solved}).findings("ENT003") == []


def rechecking(reward: Curve) -> dict[str, Curve]:
    return {REFLECTION: noisy(ramp(0.6, 0.03, 40, begin=20), 0.01, 1), REWARD: reward}


def test_lost_rechecks_are_graded_by_the_outcome() -> None:
    assert run(rechecking(FLAT)).finding("ENT004").severity == "warning"
    assert run(rechecking(RISING)).finding("ENT004").severity == "info"
    rare = {REFLECTION: noisy(ramp(0.1, 0.0, 40), 0.01, 1), REWARD: FLAT}
    assert run(rare).findings("ENT004") == []
    assert run({REFLECTION: noisy(0.5, 0.04, 1), REWARD: FLAT}).findings("ENT004") == []


def clipped(entropy: Curve, reward: Curve) -> dict[str, Curve]:
    return {
        HIGH: noisy(0.01, 0.002, 1),
        FORKS: noisy(0.05, 0.01, 2),
        PROBABILITY: noisy(0.12, 0.03, 3),
        ENTROPY: entropy,
        REWARD: reward,
    }


def test_clips_of_unlikely_tokens_matter_when_entropy_is_lost() -> None:
    lost = noisy(ramp(0.5, 0.1, 40), 0.01, 4)
    finding = run(clipped(lost, FLAT)).finding("CLP003")
    assert (finding.severity, finding.remedies[0]) == ("warning", "clip-higher")
    assert "probability 0.1" in finding.summary
    assert run(clipped(lost, RISING)).finding("CLP003").severity == "info"
    assert run(clipped(noisy(0.5, 0.02, 4), FLAT)).finding("CLP003").severity == "info"


def test_forks_decide_where_the_probability_is_not_measured() -> None:
    curves = clipped(noisy(ramp(0.5, 0.1, 40), 0.01, 4), FLAT)
    del curves[PROBABILITY]
    assert "forking" in run(curves).finding("CLP003").summary


def test_few_clips_or_clips_of_likely_tokens_are_quiet() -> None:
    lost = noisy(ramp(0.5, 0.1, 40), 0.01, 4)
    assert run({**clipped(lost, FLAT), HIGH: noisy(0.0005, 0.0002, 1)}).findings("CLP003") == []
    likely = {
        **clipped(lost, FLAT),
        PROBABILITY: noisy(0.7, 0.05, 3),
        FORKS: noisy(0.004, 0.001, 2),
    }
    assert run(likely).findings("CLP003") == []


def test_a_loss_that_bounds_weights_does_not_clip() -> None:
    records = steps(100, clipped(noisy(ramp(0.5, 0.1, 40), 0.01, 4), FLAT))
    assert Patient(records, knobs={"loss": "cispo"}).findings("CLP003") == []


CODES = ("ENT003", "ENT004", "CLP003")


@pytest.mark.parametrize("seed", range(4))
def test_healthy_runs_are_quiet(seed: int) -> None:
    patient = Patient(steps(150, healthy(seed)))
    assert [each for code in CODES for each in patient.findings(code)] == []


def test_skipped_and_not_applicable() -> None:
    skipped = {each.code for each in run({REWARD: FLAT}).engine.diagnosis().skipped}
    assert set(CODES) <= skipped
    on_policy = NotApplicable("one update per batch")
    patient = run({FORKS: on_policy, PROBABILITY: on_policy, HIGH: on_policy})
    assert patient.why_not("CLP003") == "one update per batch"

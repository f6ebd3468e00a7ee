from __future__ import annotations

import math
import random

import pytest

from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import NotApplicable
from tests.rules.scenario import Curve, Patient, healthy, noisy, ramp, steps

ENTROPY, ACCURACY, REWARD = "entropy/mean", "accuracy/train", "reward/mean"
NGRAMS, DUPLICATES = "text/unique_ngram_rate", "groups/duplicate_rate"


def changed(
    curves: dict[str, Curve], *, count: int = 120, seed: int = 1, without: tuple[str, ...] = ()
) -> Patient:
    every = {**healthy(seed), **curves}
    return Patient(steps(count, {name: c for name, c in every.items() if name not in without}))


def fall(last: float, steps_taken: int = 60) -> Curve:
    return noisy(ramp(0.5, last, steps_taken), 0.01, 7)


def flat(level: float) -> dict[str, Curve]:
    outcome = noisy(level, 0.05, 8)
    return {ACCURACY: outcome, REWARD: outcome}


def test_falling_entropy_with_rising_accuracy_is_health() -> None:
    assert changed({}).findings("ENT001") == []
    assert changed({ENTROPY: fall(0.05)}).findings("ENT001") == []


def test_collapse_without_a_rising_outcome_is_a_warning() -> None:
    finding = changed({ENTROPY: fall(0.05), **flat(0.45)}).finding("ENT001")
    assert finding.severity == "warning"
    assert finding.active
    assert 40 < finding.onset_step < 65
    entropy = finding.evidence[0]
    assert entropy.metric == ENTROPY
    assert entropy.baseline == pytest.approx(0.46, abs=0.05)


def test_collapse_with_the_outcome_lost_is_critical() -> None:
    lost = noisy(ramp(0.45, 0.1, 30, begin=50), 0.05, 9)
    finding = changed({ENTROPY: fall(0.02), ACCURACY: lost, REWARD: lost}).finding("ENT001")
    assert finding.severity == "critical"


def test_an_extreme_fall_alongside_a_rising_outcome_is_info() -> None:
    finding = changed({ENTROPY: fall(0.01, 40)}, count=80).finding("ENT001")
    assert finding.severity == "info"
    assert "exploration" in finding.summary


def test_equal_answers_alongside_a_rising_outcome_are_info() -> None:
    copies = noisy(ramp(0.15, 0.85, 60), 0.02, 3)
    finding = changed({ENTROPY: fall(0.05), DUPLICATES: copies}).finding("ENT001")
    assert finding.severity == "info"


def test_collapse_after_which_the_outcome_stands_still_is_a_warning() -> None:
    low = noisy(ramp(0.1, 0.4, 60), 0.02, 8)
    curves: dict[str, Curve] = {ENTROPY: fall(0.01), ACCURACY: low, REWARD: low}
    finding = changed(curves, count=250).finding("ENT001")
    assert finding.severity == "warning"
    assert "stopped rising" in finding.summary


def test_the_same_at_a_high_outcome_is_info() -> None:
    """A healthy agent run: entropy .2 to .003, reward .36 to .85."""
    high = noisy(ramp(0.36, 0.85, 60), 0.03, 8)
    curves: dict[str, Curve] = {ENTROPY: fall(0.01), ACCURACY: high, REWARD: high}
    assert changed(curves, count=300).finding("ENT001").severity == "info"


def test_a_collapse_within_the_first_ten_readings_is_no_baseline() -> None:
    """A public run: .51 to .06 nats in ten readings; their median would hide the fall."""
    entropy = [0.507, 0.464, 0.367, 0.298, 0.197, 0.092, 0.082, 0.068, 0.065, 0.055] + [0.04] * 30
    curves: dict[str, Curve] = {ENTROPY: entropy, REWARD: noisy(0.2, 0.02, 1)}
    finding = Patient(steps(40, curves)).finding("ENT001")
    assert finding.severity == "warning"
    assert finding.onset_step <= 12
    assert finding.evidence[0].value == 0.04


def test_a_collapse_without_any_signal_is_a_warning_although_the_reward_rose() -> None:
    """The same run: the reward rose from -2.1 to -1, and then every response earned -1."""
    entropy = ramp(0.5, 0.04, 10)
    reward = ramp(-2.1, -1.0, 8)
    curves: dict[str, Curve] = {ENTROPY: entropy, REWARD: reward, "reward/max": reward}
    same = Patient(steps(45, {**curves, "reward/min": reward})).finding("ENT001")
    assert same.severity == "warning"
    assert "no group varies" in same.summary
    varying = Patient(steps(45, {**curves, "reward/min": -5.0}))
    assert varying.findings("ENT001") == []


def test_entropy_near_that_of_noise_needs_no_comparison() -> None:
    finding = Patient(steps(12, {ENTROPY: noisy(9.8, 0.1, 1)})).finding("ENT002")
    assert (finding.severity, finding.onset_step) == ("critical", 0)
    assert Patient(steps(12, {ENTROPY: noisy(2.0, 0.1, 1)})).findings("ENT002") == []


def test_noise_from_the_first_reading_on_is_no_work_of_updates() -> None:
    """A public run: 10.82 nats, ln 50,257, from the first step on, at a gradient of 0."""
    loaded = Patient(steps(12, {ENTROPY: noisy(10.8, 0.01, 1)})).finding("ENT002")
    assert loaded.remedies == ("check-loading", "lower-temperature")
    assert "since the first reading" in loaded.summary
    exploded = Patient(steps(40, {ENTROPY: noisy(ramp(1.0, 9.8, 20), 0.1, 1)})).finding("ENT002")
    assert exploded.remedies[0] == "lower-learning-rate"
    assert "since" not in exploded.summary


def test_an_entropy_beyond_any_vocabulary_is_that_of_a_response() -> None:
    """A public script logs the sum over the tokens of a response, 86 to 35 nats."""
    for course in (ramp(86.0, 35.0, 28), ramp(35.0, 120.0, 28)):
        assert Patient(steps(28, {ENTROPY: noisy(course, 2.0, 1)})).findings("ENT002") == []
    assert Patient(steps(28, {ENTROPY: noisy(12.0, 0.1, 1)})).finding("ENT002").active


def test_loops_are_a_warning_even_when_the_reward_rises() -> None:
    loops = noisy(ramp(0.93, 0.2, 60), 0.01, 4)
    finding = changed({ENTROPY: fall(0.05), NGRAMS: loops}).finding("ENT001")
    assert finding.severity == "warning"


def test_a_solved_task_is_saturation() -> None:
    solved = noisy(ramp(0.68, 1.0, 30), 0.005, 5)
    solved_rate = lambda step: min(1.0, float(solved(step) or 0))  # noqa: E731 - a curve
    curves = {ENTROPY: fall(0.001, 30), ACCURACY: solved_rate, REWARD: solved_rate}
    finding = changed(curves).finding("ENT001")
    assert finding.severity == "info"
    assert "prompts are solved" in finding.summary


def test_zero_at_every_step_means_not_computed() -> None:
    patient = changed({ENTROPY: 0})
    assert (
        patient.why_not("ENT001")
        == "the logged entropy is 0 at every step, so the framework did not compute it"
    )
    assert patient.findings("ENT001") == []
    assert patient.findings("ENT002") == []


def test_zero_after_a_living_start_is_a_collapse() -> None:
    curve = [0.5] * 20 + [0.0] * 200
    finding = changed({ENTROPY: curve, **flat(0.45)}, count=220).finding("ENT001")
    assert finding.active


def test_without_any_outcome_it_is_only_info() -> None:
    finding = changed({ENTROPY: fall(0.05)}, without=(ACCURACY, REWARD)).finding("ENT001")
    assert finding.severity == "info"


def test_absent_and_not_applicable() -> None:
    patient = changed({}, without=(ENTROPY,))
    assert {"ENT001", "ENT002"} <= {each.code for each in patient.engine.diagnosis().skipped}
    patient = changed({ENTROPY: NotApplicable("no sampler")})
    assert patient.why_not("ENT001") == patient.why_not("ENT002") == "no sampler"


def test_explosion_with_the_outcome_lost_is_critical() -> None:
    """A quantised sampler's log-probabilities as the old policy: .5 to .87 nats, .37 to .12."""
    lost = noisy(ramp(0.4, 0.12, 20, begin=5), 0.04, 6)
    rising = noisy(ramp(0.5, 0.87, 40, begin=5), 0.02, 6)
    finding = changed({ENTROPY: rising, ACCURACY: lost, REWARD: lost}).finding("ENT002")
    assert finding.severity == "critical"
    assert finding.onset_step < 45


def test_explosion_without_a_rise_is_a_warning() -> None:
    rising = noisy(ramp(0.5, 0.9, 40, begin=10), 0.02, 6)
    assert changed({ENTROPY: rising, **flat(0.45)}).finding("ENT002").severity == "warning"


@pytest.mark.parametrize(("last", "severity"), [(0.25, "info"), (0.45, "warning")])
def test_a_rise_that_leaves_the_policy_nearly_greedy_is_no_alarm(
    last: float, severity: str
) -> None:
    """A public run: .11 to .24 nats while a noisy reward rose from -.03 to .15."""
    rising = noisy(ramp(0.11, last, 80, begin=10), 0.02, 6)
    found = changed({ENTROPY: rising, **flat(0.45)}).finding("ENT002")
    assert (found.severity, found.active) == (severity, True)
    lost = noisy(ramp(0.4, 0.05, 20, begin=30), 0.02, 6)
    fallen = changed({ENTROPY: rising, ACCURACY: lost, REWARD: lost}).finding("ENT002")
    assert fallen.severity == "critical"


def test_slowly_rising_entropy_alongside_a_rising_outcome_is_wanted() -> None:
    assert changed({ENTROPY: noisy(ramp(0.5, 0.9, 120), 0.02, 6)}).findings("ENT002") == []


def test_a_nearly_deterministic_start_does_not_explode_by_noise() -> None:
    """A public run with entropy .038 to .047 and no reward at all."""
    low = noisy(ramp(0.03, 0.06, 40, begin=10), 0.004, 6)
    assert changed({ENTROPY: low, **flat(0.0)}).findings("ENT002") == []


def test_the_entropy_of_single_prompts_is_no_collapse() -> None:
    """A public run, one prompt a step: .0002 to 1.6 nats from first to last."""
    for seed in (3, 4, 18):
        rng = random.Random(seed)
        entropy = [0.06 * math.exp(rng.gauss(0, 2)) for _ in range(600)]
        curves: dict[str, Curve] = {"entropy/mean": entropy, "reward/mean": noisy(0.9, 0.3, 1)}
        assert Patient(steps(600, curves)).findings("ENT001") == []


def test_an_estimate_by_the_sampled_tokens_will_do() -> None:
    """tinker-cookbook logs no other: .77 to .0001 nats while the task is solved, and unsolved."""
    every = {name: c for name, c in healthy(1).items() if not name.startswith("entropy/")}
    falls: dict[str, Curve] = {**every, "entropy/sampled": noisy(ramp(0.77, 0.01, 30), 0.003, 1)}
    flat: dict[str, Curve] = {**falls, "accuracy/train": noisy(0.4, 0.02, 2)}
    assert Patient(steps(80, flat)).finding("ENT001").severity == "warning"
    rises: dict[str, Curve] = {**flat, "entropy/sampled": noisy(ramp(0.5, 1.4, 30), 0.01, 3)}
    assert Patient(steps(80, rises)).finding("ENT002").severity == "warning"


def test_a_burst_within_the_first_ten_readings_is_an_explosion() -> None:
    """A public run: .17 to 8 nats within nine readings, so that its start is no baseline."""
    entropy = [0.16, 0.17, 0.17, 1.2, 2.0, 3.8, 5.0, 6.7, 7.5, 7.9] + [8.1] * 20
    curves: dict[str, Curve] = {"entropy/mean": entropy, "reward/mean": [0.8] * 4 + [0.0] * 26}
    finding = Patient(steps(30, curves)).finding("ENT002")
    assert (finding.severity, finding.onset_step) == ("critical", 9)
    assert finding.onset_step <= 12


def test_a_rise_is_dated_where_it_began() -> None:

    def rising(step: int) -> float:
        return 1.3 + 0.02 * math.sin(step) + max(0, step - 30) * 0.04

    finding = Patient(steps(70, {ENTROPY: rising, **flat(0.6)})).finding("ENT002")
    assert 28 <= finding.onset_step <= 34
    assert finding.severity == "warning"


def test_a_policy_that_loops_is_a_warning_although_no_reward_is_logged() -> None:
    """A public distillation run: 4.6 to .005 nats, and 860 to 4,096 tokens per response."""

    def unjudged(length: Curve, count: int = 40) -> Patient:
        falls = [5.0] * 7 + [2.6, 1.1, 0.5, 0.2, 0.1, 0.05, 0.03] + [0.01] * 30
        return Patient(steps(count, {"entropy/sampled": falls, "length/mean": length}))

    finding = unjudged(ramp(860.0, 4096.0, 15)).finding("ENT001")
    assert finding.severity == "warning"
    assert "runs to 4096 tokens: it loops" in finding.summary
    assert unjudged(ramp(860.0, 1200.5, 15)).finding("ENT001").severity == "info"
    assert unjudged(4096.0).finding("ENT001").severity == "info"


def test_a_base_model_that_becomes_surer_is_no_noise() -> None:
    """Base models begin at two to three nats per token: what counts is whether entropy falls."""
    others = {name: curve for name, curve in healthy(1).items() if name != "accuracy/train"}
    others["reward/mean"] = noisy(0.07, 0.02, 1)
    steady = Patient(steps(60, {**others, "entropy/mean": noisy(2.7, 0.06, 2)}))
    assert steady.finding("ENT006").severity == "warning"
    falling = noisy(ramp(2.8, 2.1, 60), 0.06, 2)
    surer = Patient(steps(60, {**others, "entropy/mean": falling}))
    assert surer.findings("ENT006") == []


@pytest.mark.parametrize(
    ("knobs", "logged", "first"),
    [
        ({"entropy_coefficient": 0.05}, None, "smaller-entropy-bonus"),
        ({"entropy_coefficient": 0.01}, None, "smaller-entropy-bonus"),
        ({}, 0.02, "smaller-entropy-bonus"),
        ({"entropy_coefficient": 0.0}, None, "lower-learning-rate"),
        ({}, None, "lower-learning-rate"),
    ],
)
def test_a_bonus_in_force_is_lowered_before_the_learning_rate(
    knobs: dict[str, Setting], logged: float | None, first: str
) -> None:
    curves = {**healthy(1), ENTROPY: noisy(ramp(0.5, 2.5, 40, begin=10), 0.02, 6), **flat(0.45)}
    if logged is not None:
        curves["optimizer/entropy_coefficient"] = logged
    finding = Patient(steps(120, curves), knobs=knobs).finding("ENT002")
    assert finding.remedies[0] == first
    assert finding.remedies.count("smaller-entropy-bonus") == 1

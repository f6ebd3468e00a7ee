"""GRP006, GRP007 and INS002: critics, pass rates, and runs whose signal is a teacher."""

from __future__ import annotations

import pytest

from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import NotApplicable, Rate
from tests.rules.scenario import Curve, Patient, Point, healthy, noisy, ramp, steps

EXPLAINED, ACCURACY, SIZE = "critic/explained_variance", "accuracy/train", "groups/size"
REWARD, TEACHER = "reward/mean", "kl/teacher"
FLAT: Curve = noisy(0.4, 0.05, 9)
RISING: Curve = noisy(ramp(0.3, 0.7, 60), 0.04, 9)


def run(curves: dict[str, Curve], count: int = 80, **knobs: Setting) -> Patient:
    return Patient(steps(count, curves), knobs=knobs)


def test_a_critic_that_explains_nothing_is_graded_by_the_outcome() -> None:
    useless: Curve = noisy(-0.6, 0.2, 1, low=-9)
    finding = run({EXPLAINED: useless, REWARD: FLAT}).finding("GRP006")
    assert (finding.severity, finding.remedies) == ("warning", ("warm-up-critic",))
    assert run({EXPLAINED: useless, REWARD: RISING}).finding("GRP006").severity == "info"


@pytest.mark.parametrize("seed", range(3))
def test_single_readings_above_zero_do_not_excuse_a_useless_critic(seed: int) -> None:
    scattered: Curve = noisy(-0.6, 0.8, seed, low=-9)
    patient = run({EXPLAINED: scattered, REWARD: FLAT})
    assert patient.finding("GRP006").active
    assert patient.raised("GRP006") == 1


def test_a_critic_whose_values_never_change_is_not_trained() -> None:
    """A planted run: the critic's learning rate is 0, and the reward rises a little."""
    curves: dict[str, Curve] = {EXPLAINED: 0.0, "critic/value_mean": 0.0, REWARD: RISING}
    finding = run(curves).finding("GRP006")
    assert (finding.severity, finding.remedies) == ("warning", ("warm-up-critic",))
    assert "at every step" in finding.summary
    scattered = run({**curves, EXPLAINED: noisy(0.0, 0.01, 3, low=-9)})
    assert scattered.finding("GRP006").onset_step < 35
    moving = run({**curves, "critic/value_mean": noisy(0.4, 0.01, 1)})
    assert moving.finding("GRP006").severity == "info"


def test_a_critic_may_take_time_to_learn() -> None:
    learning: Curve = noisy(ramp(-0.8, 0.5, 40), 0.05, 1, low=-9)
    assert run({EXPLAINED: learning, REWARD: FLAT}).findings("GRP006") == []
    assert run({EXPLAINED: noisy(0.3, 0.1, 1), REWARD: FLAT}).findings("GRP006") == []


def rare(step: int) -> Point:
    """Half a success in 128 responses: a pass rate of .4 %."""
    return Rate(step % 2, 128)


def test_a_pass_rate_that_the_group_cannot_resolve() -> None:
    finding = run({ACCURACY: rare, SIZE: 8}, prompts_per_batch=16).finding("GRP007")
    assert (finding.severity, finding.remedies[0]) == ("warning", "larger-groups")
    assert "0.39%" in finding.summary
    assert "groups of 178" in finding.summary
    assert run({ACCURACY: rare, SIZE: 8}).finding("GRP007").severity == "info"
    assert run({ACCURACY: rare}, group_size=8).finding("GRP007").severity == "info"


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.9, 0.99])
def test_ordinary_pass_rates_are_quiet(rate: float) -> None:
    curves: dict[str, Curve] = {ACCURACY: noisy(rate, 0.01, 1), SIZE: 8}
    assert run(curves, prompts_per_batch=16).findings("GRP007") == []


def test_partial_credit_or_a_critic_gives_a_gradient_anyway() -> None:
    partial: dict[str, Curve] = {ACCURACY: rare, SIZE: 8, "groups/effective_rate": 0.8}
    assert run(partial, prompts_per_batch=16).findings("GRP007") == []
    patient = run({ACCURACY: rare, SIZE: 8}, advantage="gae")
    assert "critic" in str(patient.why_not("GRP007"))


def test_a_distillation_is_recognized_and_its_reward_of_zero_expected() -> None:
    teacher: Curve = noisy(ramp(0.8, 0.2, 60), 0.01, 1)
    for rewards in ({}, {REWARD: 0.0}):
        finding = run({TEACHER: teacher, **rewards}).finding("INS002")
        assert (finding.severity, finding.remedies) == ("info", ())
        assert "to 0.2 nats" in finding.summary


def test_zero_rewards_of_a_distillation_raise_no_alarm() -> None:
    curves: dict[str, Curve] = {
        TEACHER: noisy(ramp(0.8, 0.2, 60), 0.01, 1),
        REWARD: 0.0,
        "reward/std": 0.0,
        ACCURACY: 0.0,
        "groups/all_incorrect_rate": 1.0,
        "groups/zero_variance_rate": 1.0,
        "optimizer/grad_norm": noisy(1.0, 0.1, 2),
        "optimizer/loss": noisy(0.3, 0.02, 3),
        "length/mean": noisy(500, 20, 5),
    }
    patient = run(curves)
    assert patient.alarms() == []
    assert "teacher" in str(patient.why_not("GRP002"))
    del curves[TEACHER]
    assert run(curves).alarms() != []


def test_a_reward_that_moves_is_judged_as_usual() -> None:
    assert run({TEACHER: 0.5, REWARD: RISING}).findings("INS002") == []


CODES = ("GRP006", "GRP007", "INS002")


@pytest.mark.parametrize("seed", range(4))
def test_healthy_runs_are_quiet(seed: int) -> None:
    patient = Patient(steps(150, healthy(seed)), knobs={"prompts_per_batch": 16})
    assert [each for code in CODES for each in patient.findings(code)] == []


def test_skipped_and_not_applicable() -> None:
    skipped = {each.code for each in run({REWARD: FLAT}).engine.diagnosis().skipped}
    assert set(CODES) <= skipped
    patient = run({EXPLAINED: NotApplicable("no critic")})
    assert patient.why_not("GRP006") == "no critic"


def test_components_cancel_in_a_log_without_the_total_s_deviation() -> None:
    """TRL logs each component's deviation, and only the share of groups without variance."""
    curves: dict[str, Curve] = {
        "reward/mean": 0.0,
        "groups/zero_variance_rate": 1.0,
        "reward/component/task/std": noisy(0.49, 0.01, 1),
        "reward/component/penalty/std": noisy(0.49, 0.01, 1),
    }
    assert Patient(steps(40, curves)).finding("GRP003").severity == "critical"
    alone = {**curves, "reward/component/penalty/std": 0.0}
    assert Patient(steps(40, alone)).findings("GRP003") == []
    moving = {**curves, "reward/mean": noisy(0.4, 0.05, 2)}
    assert Patient(steps(40, moving)).findings("GRP003") == []

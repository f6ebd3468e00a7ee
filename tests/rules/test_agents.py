"""DAT001 to DAT004: foreign tokens in the loss, failing tools, aborted and invalid rollouts."""

from __future__ import annotations

import random

import pytest

from grpodoctor.vocabulary.values import NotApplicable
from tests.rules.scenario import Curve, Patient, healthy, noisy, ramp, steps

FOREIGN, FAILURES, ERRORS = (
    "optimizer/environment_token_rate",
    "tools/failure_rate",
    "rollouts/error_rate",
)
ABORTED, INVALID = "rollouts/aborted_rate", "environment/invalid_action_rate"
REWARD = "reward/mean"
FLAT: Curve = noisy(0.4, 0.05, 9)
RISING: Curve = noisy(ramp(0.3, 0.7, 60), 0.04, 9)


def run(curves: dict[str, Curve], count: int = 80) -> Patient:
    return Patient(steps(count, curves))


def test_foreign_tokens_are_graded_by_their_share() -> None:
    finding = run({FOREIGN: noisy(0.01, 0.002, 1)}).finding("DAT001")
    assert (finding.severity, finding.remedies[0]) == ("warning", "mask-environment-tokens")
    assert run({FOREIGN: noisy(0.4, 0.02, 1)}).finding("DAT001").severity == "critical"
    assert run({FOREIGN: 0.0}).findings("DAT001") == []


def test_an_outage_that_takes_the_reward_with_it() -> None:
    down = {step for step in range(80) if random.Random(step).random() < 0.3}

    def failures(step: int) -> float:
        return 0.6 if step in down else 0.1

    def reward(step: int) -> float:
        return 0.2 if step in down else 0.5

    curves: dict[str, Curve] = {
        FAILURES: noisy(failures, 0.03, 1),
        REWARD: noisy(reward, 0.03, 2),
    }
    finding = run(curves).finding("DAT002")
    assert finding.severity == "warning"
    assert "correlation -0." in finding.summary
    assert finding.remedies == ("drop-failed-rollouts",)


@pytest.mark.parametrize(("metric", "code"), [(FAILURES, "DAT002"), (ABORTED, "DAT003")])
def test_failures_are_dated_to_the_step_at_which_they_began(metric: str, code: str) -> None:
    """What they cause is dated to the step as well, and must not come first."""
    curves: dict[str, Curve] = {
        metric: noisy(lambda step: 0.6 if step >= 41 else 0.0, 0.01, 1),
        REWARD: noisy(lambda step: 0.2 if step >= 41 else 0.5, 0.02, 2),
    }
    assert run(curves).finding(code).onset_step == 41
    constant = {metric: noisy(0.6, 0.02, 1), REWARD: FLAT}
    assert run(constant).finding(code).onset_step == 0


def test_constant_failures_are_a_warning_only_if_nothing_rises() -> None:
    assert (
        run({FAILURES: noisy(0.6, 0.03, 1), REWARD: FLAT}).finding("DAT002").severity == "warning"
    )
    assert run({ERRORS: noisy(0.6, 0.03, 1), REWARD: RISING}).finding("DAT002").severity == "info"
    programs = run({FAILURES: noisy(0.24, 0.02, 1), REWARD: FLAT})
    assert programs.finding("DAT002").severity == "info"


def test_a_syntax_that_is_learned_is_progress() -> None:
    learned: Curve = noisy(ramp(0.8, 0.1, 60), 0.03, 1)
    assert [
        f for f in run({FAILURES: learned, REWARD: RISING}).findings("DAT002") if f.active
    ] == []
    assert run({FAILURES: noisy(0.02, 0.01, 1), REWARD: FLAT}).findings("DAT002") == []


def test_aborted_responses_are_graded_by_their_share() -> None:
    assert run({ABORTED: noisy(0.04, 0.01, 1)}).finding("DAT003").severity == "info"
    assert run({ABORTED: noisy(0.2, 0.02, 1)}).finding("DAT003").severity == "warning"
    assert run({ABORTED: noisy(0.7, 0.02, 1)}).finding("DAT003").severity == "critical"
    assert run({ABORTED: 0.0}).findings("DAT003") == []


def test_actions_that_become_invalid_in_a_collapse_are_critical() -> None:
    """A public run: invalid actions to .94 while the score falls from .93 to -.19."""
    curves: dict[str, Curve] = {
        INVALID: noisy(ramp(0.05, 0.94, 15, begin=50), 0.02, 1),
        REWARD: noisy(ramp(0.9, 0.02, 15, begin=50), 0.03, 2),
    }
    finding = run(curves).finding("DAT004")
    assert finding.severity == "critical"
    assert 48 <= finding.onset_step <= 65


def test_invalid_actions_that_stay_high_are_a_warning() -> None:
    assert run({INVALID: noisy(0.7, 0.03, 1), REWARD: FLAT}).finding("DAT004").severity == "warning"


def test_an_action_format_that_is_learned_is_progress() -> None:
    learned: Curve = noisy(ramp(0.9, 0.05, 60), 0.03, 1)
    assert run({INVALID: learned, REWARD: RISING}).findings("DAT004") == []
    assert run({INVALID: noisy(0.1, 0.02, 1), REWARD: FLAT}).findings("DAT004") == []


CODES = ("DAT001", "DAT002", "DAT003", "DAT004")


@pytest.mark.parametrize("seed", range(4))
def test_healthy_runs_are_quiet(seed: int) -> None:
    agent: dict[str, Curve] = {
        FOREIGN: 0.0,
        FAILURES: noisy(ramp(0.3, 0.02, 60), 0.02, seed),
        ABORTED: noisy(0.002, 0.002, seed),
        INVALID: noisy(ramp(0.5, 0.03, 60), 0.03, seed),
    }
    patient = Patient(steps(150, {**healthy(seed), **agent}))
    alarms = [f for code in CODES for f in patient.findings(code) if f.severity != "info"]
    assert alarms == []


def test_skipped_and_not_applicable() -> None:
    skipped = {each.code for each in run({REWARD: FLAT}).engine.diagnosis().skipped}
    assert set(CODES) <= skipped
    patient = run({FOREIGN: NotApplicable("no token is in the loss")})
    assert patient.why_not("DAT001") == "no token is in the loss"

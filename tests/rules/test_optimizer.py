from __future__ import annotations

import pytest

from grpodoctor.rules.base import Finding
from grpodoctor.vocabulary.values import NotApplicable
from tests.rules.scenario import Curve, Patient, healthy, noisy, ramp, steps
from tests.rules.scenario import altered as run

LOSS, GRADIENT, TOKENS = "optimizer/loss", "optimizer/grad_norm", "optimizer/loss_tokens"
FLAT, WRONG, RIGHT = (
    "groups/zero_variance_rate",
    "groups/all_incorrect_rate",
    "groups/all_correct_rate",
)


def groups_off() -> tuple[str, ...]:
    return tuple(name for name in healthy(1) if name.startswith(("groups/", "advantage/")))


def test_a_loss_that_prints_zero_with_a_live_gradient_is_expected() -> None:
    """A public run: loss 0.0 on every row, gradient .003 to .006, spread of reward .2."""
    finding = run({LOSS: 0.0, GRADIENT: noisy(0.0045, 0.0008, 1)}).finding("OPT001")
    assert (finding.severity, finding.remedies) == ("info", ())
    assert "expected" in finding.summary


def test_missing_signal_is_separated_from_harmless_even_where_a_penalty_leaves_a_gradient() -> None:
    curves: dict[str, Curve] = {
        LOSS: 0.0,
        GRADIENT: noisy(0.003, 0.0005, 1),
        FLAT: 1.0,
        RIGHT: 0.0,
        WRONG: 1.0,
        "accuracy/train": 0.0,
        "reward/mean": 0.0,
    }
    patient = run(curves, count=40)
    assert patient.finding("OPT001").severity == "info"
    assert "no group varies" in patient.finding("OPT001").summary
    assert patient.engine.diagnosis().findings[0].code == "GRP002"  # the cause before the symptom


def test_without_signal_without_a_group_rate_is_seen_by_the_spread_of_the_batch() -> None:
    curves: dict[str, Curve] = {LOSS: 0.0, GRADIENT: 0.0, "reward/std": 0.0}
    finding = run(curves, without=groups_off()).finding("OPT001")
    assert "no group varies" in finding.summary
    assert finding.severity == "critical"


def test_without_signal_by_success_is_saturation() -> None:
    curves: dict[str, Curve] = {
        GRADIENT: 0.0,
        FLAT: 1.0,
        RIGHT: 1.0,
        WRONG: 0.0,
        "accuracy/train": 1.0,
        "reward/mean": 1.0,
    }
    finding = run(curves).finding("OPT001")
    assert finding.severity == "info"
    assert "prompts are solved" in finding.summary


def test_a_mask_that_removes_every_token_is_broken() -> None:
    finding = run({GRADIENT: 0.0, LOSS: 0.0, TOKENS: 0}).finding("OPT001")
    assert (finding.severity, finding.remedies) == ("critical", ("check-loss-mask",))
    assert "mask removes all tokens" in finding.summary


def test_groups_that_vary_without_a_gradient_are_broken() -> None:
    finding = run({GRADIENT: 0.0}).finding("OPT001")
    assert finding.severity == "critical"
    assert "although groups vary" in finding.summary


def test_an_unknown_cause_stays_open() -> None:
    finding = run({GRADIENT: 0.0}, without=groups_off()).finding("OPT001")
    assert finding.severity == "warning"
    assert "not logged" in finding.summary


def test_batches_of_few_prompts_without_a_gradient_are_no_alarm_while_others_have_one() -> None:
    """Six batches without a success come first, and half of the later ones are all or nothing."""
    later = [0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.3, 0.0, 0.4, 0.5]
    gradients = [0.0] * 6 + later * 5 + later[:4]
    curves: dict[str, Curve] = {GRADIENT: gradients, "reward/mean": ramp(0.0, 0.1, 55)}
    finding = run(curves, without=groups_off()).finding("OPT001")
    assert finding.severity == "info"
    assert "group rewards, which would show why, are not logged" in finding.summary


def test_single_batches_without_signal_are_ordinary() -> None:
    sparse = [0.3, 0.0, 0.2, 0.4, 0.0, 0.0, 0.1, 0.0, 0.0, 0.0] * 6
    assert run({GRADIENT: sparse}).findings("OPT001") == []


def test_absent_zero_and_not_applicable() -> None:
    names = tuple(name for name in healthy(1) if name.startswith("optimizer/"))
    skipped = {each.code for each in run({}, without=names).engine.diagnosis().skipped}
    assert {"OPT001", "OPT002"} <= skipped
    patient = run(dict.fromkeys(names, NotApplicable("evaluation only")))
    assert patient.why_not("OPT001") == patient.why_not("OPT002") == "evaluation only"
    patient = run(dict.fromkeys(names, 0))
    assert patient.findings("OPT002") == patient.findings("OPT003") == []


def test_with_a_critic_the_advantages_separate_missing_signal_from_broken() -> None:
    def finding(idle: float) -> Finding:
        curves = {**healthy(1), GRADIENT: 0.0, FLAT: 1.0, RIGHT: 0.5, WRONG: 0.5}
        records = steps(60, {**curves, "advantage/zero_rate": idle})
        return Patient(records, knobs={"advantage": "gae"}).finding("OPT001")

    assert "advantages are not zero" in finding(0.0).summary
    assert finding(0.0).remedies == ("check-loss-mask",)
    assert "no token has an advantage" in finding(1.0).summary


def test_single_prompts_without_spread_at_first_are_info() -> None:
    """A healthy public run, a prompt to a batch: no spread in up to half of the steps."""
    idle = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.9] + [0.9] * 40
    curves: dict[str, Curve] = {LOSS: 0.0, GRADIENT: 0.01, "groups/reward_std": idle}
    curves["reward/mean"] = noisy(0.5, 0.1, 1)
    assert Patient(steps(50, curves)).finding("OPT001").severity == "info"
    lasting: dict[str, Curve] = {**curves, "groups/reward_std": 0.0}
    assert Patient(steps(50, lasting)).finding("OPT001").severity == "warning"


def test_a_gradient_of_zero_where_the_rest_is_all_right_is_without_signal_and_not_unknown() -> None:
    curves: dict[str, Curve] = {
        "reward/mean": lambda step: 0.8 if step % 9 else 0.75,
        WRONG: 0.2,
        GRADIENT: lambda step: 0.0 if step % 9 else 0.4,
        LOSS: 0.01,
    }
    finding = Patient(steps(60, curves)).finding("OPT001")
    assert (finding.severity, "no group varies" in finding.summary) == ("info", True)


def test_a_loss_of_zero_with_a_reward_of_zero_is_without_signal() -> None:
    curves: dict[str, Curve] = {
        "reward/mean": lambda step: 0.25 if step % 8 == 0 else 0.0,
        LOSS: lambda step: -1.5 if step % 8 == 0 else 0.0,
    }
    assert "no group varies" in Patient(steps(60, curves)).finding("OPT001").summary


def test_a_gradient_of_one_step_alongside_the_groups_of_ten_is_no_fault() -> None:
    """A public run, logged every fifth step: zero in half of the logs, .7 of groups flat."""
    curves: dict[str, Curve] = {
        FLAT: [0.7, 0.8, 0.6, 0.9, 0.8, 0.7] * 10,
        GRADIENT: [0.0] * 50 + [0.4, 0.0] * 5,
        LOSS: 0.2,
        "reward/mean": noisy(0.8, 0.05, 1),
    }
    finding = Patient(steps(60, curves)).finding("OPT001")
    assert finding.severity == "info"
    assert "broken" not in finding.summary
    broken = Patient(steps(60, {**curves, FLAT: 0.2, GRADIENT: 0.0})).finding("OPT001")
    assert (broken.severity, "broken" in broken.summary) == ("critical", True)


def test_a_log_of_loss_and_reward_whose_batches_are_nearly_all_wrong_is_without_signal() -> None:
    """A script of one's own: one prompt to a batch, right now and then."""
    reward = [*[0.0] * 9, 0.25] * 10
    loss = [-2.0 if each else 0.0 for each in reward]
    plain = Patient(steps(100, {LOSS: loss, "reward/mean": reward}))
    finding = plain.finding("OPT001")
    assert finding.severity == "warning"
    assert finding.summary == (
        "The loss is 0 because no group varies in reward in 18 of the last 20 batches."
    )
    half = [0.0, 0.25] * 50
    ordinary = Patient(steps(100, {LOSS: 0.0, "reward/mean": half}))
    assert {each.severity for each in ordinary.findings("OPT001")} <= {"info"}


def test_a_gradient_that_penalties_leave_is_not_called_alive() -> None:
    """A public run: reward max = min = -1, advantages 0, and a gradient of .005 from the KL."""
    curves: dict[str, Curve] = {
        "optimizer/grad_norm": 0.005,
        "optimizer/loss": 0.0,
        "reward/mean": -1.0,
        "advantage/max": 0.0,
        "advantage/min": 0.0,
    }
    finding = Patient(steps(60, curves)).finding("OPT001")
    assert finding.severity == "warning"
    assert "penalties alone" in finding.summary
    varying: dict[str, Curve] = {**curves, "advantage/max": 1.2, "advantage/min": -0.9}
    harmless = Patient(steps(60, varying)).finding("OPT001")
    assert "A loss of 0 is expected" in harmless.summary


@pytest.mark.parametrize(
    ("level", "remedies"),
    [(1.0, ("dynamic-sampling", "harder-prompts")), (0.0, ("recheck-reward", "easier-prompts"))],
)
def test_what_to_do_without_signal_depends_on_the_reward(
    level: float, remedies: tuple[str, ...]
) -> None:
    bounds = dict.fromkeys(("reward/max", "reward/min"), lambda step: level if step % 3 else 0.5)
    curves: dict[str, Curve] = {
        **bounds,
        "reward/mean": lambda step: level if step % 3 else 0.5,
        GRADIENT: lambda step: 0.0 if step % 3 else 0.2,
    }
    finding = Patient(steps(60, curves)).findings("OPT001")[-1]
    assert finding.remedies[:2] == remedies, finding.summary


def test_a_reward_that_is_missing_from_some_step_on_explains_a_zero_gradient() -> None:
    """A planted run: the reward function returns None for all responses from step 40 on."""
    curves: dict[str, Curve] = {
        GRADIENT: lambda step: 0.5 if step < 40 else 0.0,
        "reward/mean": lambda step: 0.4 if step < 40 else None,
        FLAT: lambda step: 0.1 if step < 40 else 0.0,
    }
    finding = Patient(steps(60, curves)).finding("OPT001")
    assert (finding.severity, finding.remedies) == ("critical", ("recheck-reward",))
    assert "the reward is missing since step 40" in finding.summary
    rare = {**curves, "reward/mean": lambda step: 0.4 if step % 4 == 0 and step < 40 else None}
    assert "missing" not in Patient(steps(60, rare)).finding("OPT001").summary


def test_a_loss_of_zero_with_an_entropy_that_repeats_trains_nothing() -> None:
    """A public script whose update does nothing: entropy 1, KL .0187, loss 0 in every row."""
    frozen: dict[str, Curve] = {LOSS: 0.0, "entropy/mean": 1.0, "reward/mean": noisy(0.7, 0.01, 3)}
    finding = Patient(steps(16, frozen)).finding("OPT001")
    assert (finding.severity, finding.active) == ("warning", True)
    assert "entropy exactly 1" in finding.summary
    sampled = {**frozen, "entropy/mean": noisy(1.0, 1e-4, 4)}
    assert {each.severity for each in Patient(steps(16, sampled)).findings("OPT001")} <= {"info"}


def test_a_loss_that_becomes_zero_without_success_is_a_warning() -> None:
    """A public script without gradient norms: the policy gives one answer from step 6 on."""
    loss = [-0.15, -0.15, 0.12, 0.06, 0.03, *[0.0] * 40]
    curves: dict[str, Curve] = {LOSS: loss, "reward/mean": noisy(0.0, 0.4, 3, low=-1.0)}
    finding = Patient(steps(30, curves)).finding("OPT001")
    assert finding.severity == "warning"
    assert "at the start it was" in finding.summary
    learned = {**curves, "reward/mean": ramp(0.1, 1.0, 10)}
    assert {each.severity for each in Patient(steps(30, learned)).findings("OPT001")} <= {"info"}
    centered = {**curves, LOSS: 0.0}
    assert {each.severity for each in Patient(steps(30, centered)).findings("OPT001")} <= {"info"}


def test_equal_rewards_at_the_highest_value_of_the_run_are_success() -> None:
    """Two components of at most 1 each: the reward rises to 2 and stays there."""
    curves: dict[str, Curve] = {
        "reward/mean": [1.2, 1.3, 1.25, 1.3, 1.4, 1.35, 1.3, 1.2, 1.4, 1.5, *[1.9, 2.0, 2.0] * 30],
        "groups/reward_std": 0.0,
        GRADIENT: 0.003,
        LOSS: 0.0,
    }
    finding = Patient(steps(80, curves)).finding("OPT001")
    assert finding.severity == "info"
    assert "solved" in finding.summary
    stuck: dict[str, Curve] = {**curves, "reward/component/task/mean": 0.0}
    assert "solved" not in Patient(steps(80, stuck)).finding("OPT001").summary


def test_a_zero_gradient_is_dated_after_a_loss_that_was_zero_by_construction() -> None:
    """The centered loss of TRL prints as 0 at every step; the gradient vanishes at step 20."""
    curves: dict[str, Curve] = {
        LOSS: 0.0,
        GRADIENT: [*[0.3] * 20, *[0.0] * 40],
        "groups/reward_std": [*[0.4] * 20, *[0.0] * 40],
        "reward/mean": [*[0.4, 0.5] * 10, *[0.1] * 40],
    }
    note, fault = Patient(steps(60, curves)).findings("OPT001")
    assert (note.severity, note.active, note.last_step) == ("info", False, 19)
    assert "A loss of 0 is expected" in note.summary, "it keeps its own text"
    assert (fault.severity, fault.active, fault.onset_step) == ("critical", True, 20)
    # Single batches without any spread are no fault of their own.
    curves["groups/reward_std"] = [0.4, 0.4, 0.0] * 20
    curves[GRADIENT] = [0.3, 0.3, 0.0] * 20
    (alone,) = Patient(steps(60, curves)).findings("OPT001")
    assert (alone.severity, alone.onset_step) == ("info", 0)

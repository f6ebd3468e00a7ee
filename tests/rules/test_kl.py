from __future__ import annotations

from functools import partial

import pytest

from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import NotApplicable
from tests.rules.scenario import Curve, Patient, altered, healthy, noisy, ramp, steps

KL = "kl/old_policy/k3"
SIGNED = "kl/old_policy/k1"
CLIPS = ("clip/low_rate", "clip/high_rate")
REFERENCE = "kl/reference/k3"

run = partial(altered, count=40)


def test_a_policy_that_moves_far_on_each_batch_is_named_within_a_few_steps() -> None:
    """Sixteen updates at five times the learning rate without a clip: dead within ten steps."""
    finding = run({KL: noisy(0.12, 0.03, 1)}).finding("KLD001")
    assert (finding.severity, finding.onset_step) == ("warning", 0)
    assert finding.remedies == ("lower-learning-rate", "fewer-updates")


@pytest.mark.parametrize("level", [0.0002, 0.001, 0.01, 0.02])
def test_runs_that_learn_are_quiet(level: float) -> None:
    assert run({KL: noisy(level, level / 2, 2)}).findings("KLD001") == []


def test_a_single_spike_is_a_few_tokens() -> None:
    assert run({KL: lambda step: 0.9 if step == 20 else 0.002}).findings("KLD001") == []


def test_ratios_that_were_off_before_any_update_are_the_cause() -> None:
    curves: dict[str, Curve] = {KL: noisy(0.12, 0.02, 3), "mismatch/first_ratio_off": 0.7}
    finding = run(curves).finding("KLD001")
    assert "MIS002" in finding.summary
    assert finding.remedies[0] == "recompute-old-logprobs"


def test_absent_zero_and_not_applicable() -> None:
    skipped = {each.code for each in run({}, without=(KL, SIGNED)).engine.diagnosis().skipped}
    assert "KLD001" in skipped
    assert run({KL: 0}).findings("KLD001") == []
    none: dict[str, Curve] = dict.fromkeys((KL, SIGNED), NotApplicable("one update"))
    assert run(none).why_not("KLD001") == "one update"


def test_the_signed_estimate_that_most_frameworks_log_will_do() -> None:
    curves: dict[str, Curve] = {SIGNED: noisy(0.12, 0.03, 1, low=-1)}
    without = (KL, REFERENCE, *CLIPS)
    assert run(curves, without=without).finding("KLD001").severity == "info"
    clipped: dict[str, Curve] = {**curves, "clip/any_rate": 0.2}
    assert run(clipped, without=without).finding("KLD001").severity == "warning"
    drifted: dict[str, Curve] = {**curves, REFERENCE: noisy(ramp(0.01, 2.0, 30), 0.01, 3)}
    assert run(drifted, without=(KL, *CLIPS)).finding("KLD001").severity == "warning"
    quiet: dict[str, Curve] = {SIGNED: noisy(0.001, 0.0005, 2, low=-1)}
    assert run(quiet, without=without).findings("KLD001") == []


def test_a_signed_offset_of_tokens_that_the_policy_never_sampled_is_no_move() -> None:
    """Prefixes of another policy: .3 nats from the first step on, and the policy hardly moves."""
    curves: dict[str, Curve] = {SIGNED: noisy(0.3, 0.03, 4, low=-1)}
    near = {**curves, REFERENCE: noisy(ramp(0.001, 0.1, 60), 0.002, 5)}
    assert run(near, without=(KL, *CLIPS)).findings("KLD001") == []
    single: dict[str, Curve] = {**curves, "updates_per_batch": 1}
    assert run(single, without=(KL, REFERENCE, *CLIPS)).findings("KLD001") == []


def test_a_signed_mean_that_the_clip_speaks_against_is_a_few_tokens_doing() -> None:
    """A public run with demonstrations in the batch: .6 nats, .7 % clipped, reward rising."""
    curves: dict[str, Curve] = {SIGNED: noisy(0.6, 0.1, 3), "clip/any_rate": 0.007}
    assert run(curves, without=(KL, *CLIPS)).findings("KLD001") == []


def test_a_policy_far_from_its_reference_is_a_warning_where_nothing_rose_for_it() -> None:
    """A public run: .3 nats in the first ten readings, 2.5 from then on."""
    curves: dict[str, Curve] = {
        REFERENCE: lambda step: 0.2 + 0.01 * step if step < 10 else 2.5,
        "accuracy/train": noisy(0.5, 0.03, 4),
    }
    finding = run(curves).finding("KLD002")
    assert (finding.severity, finding.active) == ("warning", True)
    assert finding.remedies == ("lower-learning-rate", "kl-penalty")
    assert "despite" not in finding.summary
    risen = run({**curves, "accuracy/train": noisy(ramp(0.3, 0.8, 30), 0.03, 5)})
    assert risen.finding("KLD002").severity == "info"


def test_ten_nats_are_random_text_whatever_the_reward() -> None:
    curves: dict[str, Curve] = {
        REFERENCE: lambda step: 0.1 if step < 10 else 12.0,
        "accuracy/train": noisy(ramp(0.3, 0.8, 30), 0.03, 5),
    }
    finding = run(curves).finding("KLD002")
    assert finding.severity == "critical"
    assert "12 nats" in finding.summary
    assert (
        run({**curves, REFERENCE: lambda step: 0.1 if step < 10 else 9.0})
        .finding("KLD002")
        .severity
        == "info"
    )


@pytest.mark.parametrize(
    "curve",
    [
        noisy(ramp(0.001, 0.15, 40), 0.02, 6),
        noisy(1.1, 0.1, 7),  # a reference that never was the policy's own
        lambda step: 5.0 if step == 20 else 0.05,
    ],
)
def test_runs_near_their_reference_or_far_from_the_start_are_quiet(curve: Curve) -> None:
    assert run({REFERENCE: curve}).findings("KLD002") == []


def test_a_spike_beyond_random_text_is_noted_while_it_is_in_sight() -> None:
    """Public runs of up to 4e6 nats in single steps were called healthy without a word."""
    curves: dict[str, Curve] = {REFERENCE: lambda step: 41.0 if step == 20 else 0.3}
    finding = run(curves, count=100).finding("KLD002")
    assert (finding.severity, finding.onset_step, finding.active) == ("info", 20, True)
    assert "jumped to 41 nats at step 20 (usually 0.3)" in finding.summary
    assert not run(curves, count=180).finding("KLD002").active
    assert run({REFERENCE: lambda step: 41.0 if step == 20 else 3.0}).findings("KLD002") == []


def offset(curve: Curve, *, first: int = 0, period: int = 1) -> Patient:
    records = steps(60, {REFERENCE: curve})[:: period or 1]
    records = [StepRecord(first + each.step, each.values) for each in records]
    return Patient(records)


def test_a_divergence_at_the_first_step_shows_another_reference() -> None:
    """A public run: 1.1 nats at the first step."""
    finding = offset(noisy(1.1, 0.05, 1)).finding("KLD003")
    assert (finding.severity, finding.active) == ("warning", True)
    assert finding.remedies == ("check-reference",)
    assert offset(noisy(0.54, 0.02, 1)).finding("KLD003").severity == "info"
    misaligned = offset(noisy(18.0, 2.0, 2)).finding("KLD003")
    assert (misaligned.severity, misaligned.remedies) == ("critical", ("check-loss-mask",))


@pytest.mark.parametrize(
    "curve", [0.0, noisy(ramp(0.001, 3.0, 30), 0.01, 3), noisy(0.19, 0.05, 4), [9.0, *[0.01] * 60]]
)
def test_a_divergence_that_grows_or_a_first_outlier_is_no_offset(curve: Curve) -> None:
    assert offset(curve).findings("KLD003") == []


def warmed_up(kl: Curve, peak: float) -> Patient:
    """A run whose learning rate rises over fifty steps."""
    rate = lambda step: peak * step / 50  # noqa: E731 - a curve
    return Patient(steps(60, {REFERENCE: kl, "optimizer/learning_rate": rate}))


def test_a_first_divergence_that_no_update_can_cause_needs_only_exceed_its_noise() -> None:
    """Public runs: .3 nats at rates of 0 to 2e-7."""
    finding = warmed_up(noisy(0.3, 0.03, 1), 2e-5).finding("KLD003")
    assert (finding.severity, finding.onset_step) == ("info", 0)
    for other in (
        warmed_up(noisy(0.3, 0.03, 1), 1e-3),  # the first updates may have moved the policy
        warmed_up(noisy(0.2, 0.15, 1), 2e-5),
        warmed_up(noisy(0.02, 0.002, 1), 2e-5),
        offset(noisy(0.3, 0.03, 1)),
    ):
        assert other.findings("KLD003") == []


def test_a_log_that_begins_later_says_nothing_about_the_start() -> None:
    assert offset(noisy(1.1, 0.05, 1), first=400).findings("KLD003") == []
    assert offset(noisy(18.0, 1.0, 1), first=400).finding("KLD003").severity == "critical"
    finding = offset(noisy(1.1, 0.05, 1), first=10, period=10).finding("KLD003")
    assert (finding.severity, finding.onset_step) == ("warning", 10)


def test_a_teacher_need_not_be_the_starting_policy() -> None:
    """The same divergence, in a log that also shows the divergence to a teacher."""
    curves: dict[str, Curve] = {REFERENCE: noisy(0.54, 0.02, 1), "kl/teacher": noisy(0.5, 0.02, 2)}
    patient = Patient(steps(60, curves))
    assert patient.findings("KLD003") == []
    assert "KLD003" in {each.code for each in patient.engine.diagnosis().not_applicable}


def test_without_a_reference_the_offset_is_skipped() -> None:
    patient = run({}, without=(REFERENCE,))
    assert "KLD003" in {each.code for each in patient.engine.diagnosis().skipped}


def test_a_penalty_that_does_not_hold_the_policy_is_not_enlarged() -> None:
    """With an inverted sign, a larger coefficient drives the policy away faster."""
    curves: dict[str, Curve] = {
        **healthy(1),
        REFERENCE: lambda step: 0.2 + 0.01 * step if step < 10 else 2.5,
        "accuracy/train": noisy(0.5, 0.03, 4),
    }
    patient = Patient(steps(60, curves), knobs={"kl_coefficient": 0.04})
    finding = patient.finding("KLD002")
    assert finding.remedies == ("lower-learning-rate",)
    assert "despite a penalty of 0.04" in finding.summary
    without = Patient(steps(60, curves), knobs={"kl_coefficient": 0.0})
    assert "kl-penalty" in without.finding("KLD002").remedies


def test_a_spike_at_the_start_is_an_offset_and_no_misalignment() -> None:
    """A public run: rows of 34.7, 16.9 and 1.4 nats, which a few tokens dominate."""
    curve = [34.7, 16.9, 10.4, *[2.4] * 40]
    finding = offset(curve).finding("KLD003")
    assert (finding.severity, "misaligned" in finding.summary) == ("warning", False)


def penalized(coefficient: float, *, noise: float = 0.0005, step_kl: float = 0.01) -> Patient:
    """A planted run: the loss contains the coefficient times the KL, which grows and scatters."""
    kl = noisy(ramp(0.0, 0.08, 60), step_kl, 1)
    policy = noisy(0.0, noise, 2, low=-9)
    curves: dict[str, Curve] = {
        REFERENCE: kl,
        "optimizer/loss": lambda step: float(policy(step)) + coefficient * float(kl(step)),
    }
    return Patient(steps(60, curves), knobs={"kl_coefficient": abs(coefficient)})


def test_a_loss_that_falls_with_the_kl_has_an_inverted_penalty() -> None:
    finding = penalized(-0.3).finding("KLD004")
    assert (finding.severity, finding.active, finding.onset_step) == ("critical", True, 0)
    assert finding.remedies == ("check-kl-sign",)
    assert "0.31 per nat" in finding.summary


def test_a_right_sign_or_a_penalty_lost_in_the_noise_is_quiet() -> None:
    assert penalized(0.3).findings("KLD004") == []
    assert penalized(-0.001, noise=0.01).findings("KLD004") == []


def test_one_spike_of_both_is_no_inverted_penalty() -> None:
    """A policy-gradient loss that jumps down once, at the step at which the KL jumps up."""
    curves: dict[str, Curve] = {
        REFERENCE: lambda step: 5.0 if step == 50 else noisy(0.05, 0.01, 1)(step),
        "optimizer/loss": lambda step: -9.0 if step == 50 else noisy(0.0, 0.01, 2, low=-9)(step),
    }
    assert Patient(steps(60, curves)).findings("KLD004") == []


def test_a_small_offset_is_certain_where_updates_move_the_policy_far_less() -> None:
    """A planted run: .32 nats at the first step, and a thousandth of that per batch of updates."""
    offset: dict[str, Curve] = {REFERENCE: noisy(0.32, 0.03, 1)}
    assert Patient(steps(60, offset)).findings("KLD003") == []
    finding = Patient(steps(60, {**offset, KL: noisy(0.0003, 0.0001, 2)})).finding("KLD003")
    assert (finding.severity, finding.remedies) == ("info", ("check-reference",))
    assert Patient(steps(60, {**offset, KL: noisy(0.1, 0.02, 2)})).findings("KLD003") == []

"""SYN001 to SYN008: staleness, weights that do not arrive, resumed runs."""

from __future__ import annotations

import pytest

from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Max, NotApplicable
from tests.rules.scenario import Curve, Patient, healthy, noisy, ramp, steps

AGE, RATE, REWARD = "staleness/mean", "optimizer/learning_rate", "reward/mean"
PROB, LOGPROB = "mismatch/prob_diff_mean", "mismatch/logprob_diff_mean"
FLAT: Curve = noisy(0.4, 0.05, 9)
RISING: Curve = noisy(ramp(0.3, 0.7, 60), 0.04, 9)


def run(curves: dict[str, Curve], count: int = 80, **knobs: Setting) -> Patient:
    return Patient(steps(count, curves), knobs=knobs)


def aged(age: float, reward: Curve, **knobs: Setting) -> Patient:
    return run({AGE: noisy(age, 0.5, 1), REWARD: reward}, **knobs)


def test_staleness_is_judged_by_the_loss_and_the_outcome() -> None:
    finding = aged(12, FLAT, loss="ppo_clip").finding("SYN001")
    assert (finding.severity, finding.remedies[0]) == ("warning", "limit-staleness")
    assert "tolerates 4" in finding.summary
    assert aged(12, RISING, loss="ppo_clip").finding("SYN001").severity == "info"
    assert "tolerates 8" in aged(12, FLAT, correction="tis_token").finding("SYN001").summary


def test_staleness_that_comes_with_a_growing_mismatch_is_a_warning_and_its_cause() -> None:
    aging: Curve = noisy(ramp(1, 30, 30, begin=20), 0.3, 1)
    apart: Curve = noisy(ramp(0.006, 0.05, 30, begin=20), 0.0003, 2)
    finding = run({AGE: aging, LOGPROB: apart, REWARD: RISING}).finding("SYN001")
    assert finding.severity == "warning"
    assert "the mismatch grew from" in finding.summary
    alike: Curve = noisy(0.006, 0.0003, 2)
    assert run({AGE: aging, LOGPROB: alike, REWARD: RISING}).finding("SYN001").severity == "info"


@pytest.mark.parametrize(
    ("age", "knobs"),
    [(3, {}), (7, {"correction": "tis_token"}), (7, {"loss": "scalerl"}), (60, {"loss": "vespo"})],
)
def test_tolerated_staleness_is_quiet(age: float, knobs: dict[str, Setting]) -> None:
    assert aged(age, FLAT, **knobs).findings("SYN001") == []


def drifting(step: int) -> float:
    """A sampler that keeps its first weights: .09 after sixty steps in a small run."""
    return 1e-7 + 0.0016 * step


def test_weights_that_never_arrive_are_critical() -> None:
    finding = run({PROB: noisy(drifting, 0.003, 1), RATE: 1e-4}).finding("SYN002")
    assert (finding.severity, finding.remedies[0]) == ("critical", "check-weight-sync")
    assert finding.onset_step == 0


def test_the_learning_rate_s_schedule_is_followed() -> None:
    """Nothing moves during a long warm-up, then everything does."""

    def rate(step: int) -> float:
        return 1e-4 if step >= 30 else 0.0

    def moved(step: int) -> float:
        return 1e-4 + 0.002 * max(0, step - 30)

    assert run({PROB: noisy(moved, 0.001, 1), RATE: rate}).finding("SYN002").severity == "critical"


@pytest.mark.parametrize("interval", [2, 8, 16])
def test_a_sampler_that_is_synced_now_and_then_is_no_sampler_without_weights(interval: int) -> None:
    def sawtooth(step: int) -> float:
        return 1e-7 + 0.003 * (step % interval)

    assert run({PROB: noisy(sawtooth, 0.002, 1), RATE: 1e-4}).findings("SYN002") == []


def test_a_quantized_sampler_that_drifts_is_left_to_its_rule() -> None:
    """A public fp8 run: .010 to .031 over the whole run."""
    slow = noisy(ramp(0.010, 0.031, 100), 0.001, 1)
    assert run({"mismatch/kl_k3": slow, RATE: 1e-6}, 120).findings("SYN002") == []
    assert run({PROB: noisy(0.03, 0.002, 1), RATE: 1e-4}).findings("SYN002") == []


def jumping(step: int) -> float:
    """A public report: .015 to .201 at step 3."""
    return 0.201 if step >= 3 else 0.015


def test_a_jump_that_lasts_is_critical_and_dated() -> None:
    finding = run({LOGPROB: noisy(jumping, 0.002, 1)}, 12).finding("SYN003")
    assert (finding.severity, finding.onset_step) == ("critical", 3)
    assert finding.remedies[0] == "check-weight-sync"


def test_an_outlier_or_a_slow_rise_is_no_jump() -> None:
    once: Curve = lambda step: 0.3 if step == 30 else 0.015  # noqa: E731 - as short as it gets
    assert run({LOGPROB: noisy(once, 0.002, 1)}).findings("SYN003") == []
    assert run({LOGPROB: noisy(ramp(0.01, 0.2, 60), 0.003, 1)}).findings("SYN003") == []
    below = noisy(lambda step: 0.02 if step > 20 else 0.002, 0.0003, 1)
    assert run({LOGPROB: below}).findings("SYN003") == []


def test_a_jump_below_the_harmful_level_is_a_warning() -> None:
    for seed in range(3):
        jump = noisy(lambda step: 0.045 if step >= 30 else 0.006, 0.0004, seed)
        finding = run({LOGPROB: jump}).finding("SYN003")
        assert (finding.severity, finding.onset_step) == ("warning", 30)


def test_a_jump_that_follows_the_entropy_is_the_policy_s() -> None:
    """A public collapse: entropy .16 to 1.5 and mismatch .013 to .19 in one reading."""
    curves: dict[str, Curve] = {
        LOGPROB: noisy(lambda step: 0.15 if step >= 30 else 0.013, 0.001, 1),
        "entropy/mean": noisy(lambda step: 2.0 if step >= 30 else 0.16, 0.01, 2),
    }
    assert run(curves).findings("SYN003") == []


def resumed(before: Curve, after: Curve, name: str = LOGPROB, at: int = 40) -> Patient:
    first = steps(60, {name: before, REWARD: FLAT})
    second = steps(40, {name: after, REWARD: FLAT}, first=at)
    return Patient([*first, *second])


def test_a_mismatch_after_a_resume_is_told_from_one_after_a_sync() -> None:
    patient = resumed(noisy(0.012, 0.001, 1), noisy(0.2, 0.01, 2))
    finding = patient.finding("SYN004")
    assert (finding.severity, finding.onset_step) == ("warning", 40)
    assert finding.remedies[0] == "check-resume"
    assert patient.findings("SYN003") == []
    counted_twice = resumed(noisy(0.02, 0.002, 1), noisy(0.5, 0.02, 2), "kl/reference/k3")
    assert counted_twice.finding("SYN004").severity == "warning"


@pytest.mark.parametrize(
    ("after", "severity"), [(0.05, "warning"), (0.03, "warning"), (0.0085, "info")]
)
def test_a_jump_at_a_resume_shows_its_cause_at_any_level(after: float, severity: str) -> None:
    """A resume is a known step: the level decides how bad it is, not whether it is there."""
    before = 0.006 if after > 0.01 else 0.002
    for seed in range(3):
        patient = resumed(noisy(before, before / 15, seed), noisy(after, after / 20, 50 + seed))
        finding = patient.finding("SYN004")
        assert (finding.severity, finding.onset_step) == (severity, 40)


def test_a_rise_at_a_resume_within_the_noise_is_no_jump() -> None:
    scattered = noisy(lambda step: 0.002 if step % 5 else 0.012, 0.0002, 1)
    assert resumed(scattered, noisy(0.0325, 0.0003, 2)).findings("SYN004") == []
    steady = noisy(0.012, 0.0002, 1)
    assert resumed(steady, noisy(0.0325, 0.0003, 2)).findings("SYN004")


@pytest.mark.parametrize("factor", [1.8, 2.2])
def test_the_noise_before_a_resume_shows_a_small_jump(factor: float) -> None:
    for seed in range(4):
        before, after = noisy(0.006, 0.0003, seed), noisy(0.006 * factor, 0.0005, 50 + seed)
        finding = resumed(before, after).finding("SYN004")
        assert (finding.severity, finding.onset_step) == ("warning", 40)
        assert resumed(noisy(0.006, 0.002, seed), after).findings("SYN004") == []
        assert resumed(before, noisy(0.007, 0.0003, 90 + seed)).findings("SYN004") == []


def test_too_few_readings_before_a_resume_show_no_noise() -> None:
    before, after = noisy(0.006, 0.0003, 1), noisy(0.012, 0.0005, 2)
    assert resumed(before, after, at=8).findings("SYN004") == []
    assert resumed(before, after, at=15).findings("SYN004") != []


def test_a_resume_that_continues_is_quiet() -> None:
    assert resumed(noisy(0.012, 0.001, 1), noisy(0.013, 0.001, 2)).findings("SYN004") == []


def test_overlapping_branches_are_info() -> None:
    finding = resumed(0.01, 0.01).finding("SYN005")
    assert finding.severity == "info"
    assert "Steps 40 to 59 occur twice; 1 resume repeats 20 steps." in finding.summary


def test_a_run_that_begins_again_is_not_resumed() -> None:
    assert resumed(0.01, 0.01, at=0).findings("SYN005") == []
    assert resumed(0.01, 0.01, at=1).findings("SYN005") != []


CODES = ("SYN001", "SYN002", "SYN003", "SYN004", "SYN005")


@pytest.mark.parametrize("seed", range(4))
def test_healthy_runs_are_quiet(seed: int) -> None:
    patient = Patient(steps(150, healthy(seed)))
    assert [each for code in CODES for each in patient.findings(code)] == []


def test_skipped_and_not_applicable() -> None:
    skipped = {each.code for each in run({"clip/low_rate": 0.0}).engine.diagnosis().skipped}
    assert set(CODES) <= skipped
    patient = run({AGE: NotApplicable("synchronous")})
    assert patient.why_not("SYN001") == "synchronous"


def canary(**figures: float) -> dict[str, Curve]:
    """Readings of the canary: two syncs, .02 nats of noise, changes of .1 and .05 nats."""
    usual = {
        "gap": 0.02, "noise": 0.02, "unexplained": 0.02, "change": 0.1, "change_missing": 0.0,
        "change_missing_low": -0.1, "update": 0.05, "update_missing": 0.0,
        "update_missing_low": -0.1,
    }  # fmt: skip
    return {f"delivery/{name}": each for name, each in (usual | figures).items()}


def missing(share: float, updates: float, width: float = 0.1) -> dict[str, Curve]:
    return canary(
        change_missing=share, change_missing_low=share - width, update_missing=updates,
        update_missing_low=updates - width,
    )  # fmt: skip


def test_undelivered_weights_are_graded_by_what_is_missing() -> None:
    finding = run(missing(1.0, 1.0), 2).finding("SYN006")
    assert (finding.severity, finding.onset_step) == ("critical", 0)
    assert finding.summary == "The sampler lacks 100% of the learner's change since the start."
    late = run(missing(0.1, 2.0), 2).finding("SYN006")
    assert late.severity == "critical"
    assert late.summary.endswith("since the previous check.")
    assert run(missing(0.3, 1.0), 2).finding("SYN006").severity == "warning"  # one sync behind
    assert run(missing(0.15, 0.1), 2).finding("SYN006").severity == "info"  # below the noise
    assert run(missing(1.0, 1.0), 1).findings("SYN006") == []
    # A real vLLM in TRL with every weight: certain, and nothing to act on.
    assert run(missing(0.0016, 0.0016, width=0.001), 9).findings("SYN006") == []
    assert run(missing(0.9, 0.9, width=0.5), 2).finding("SYN006").severity == "info"  # not certain
    assert run(missing(0.9, 0.9, width=1), 9).findings("SYN006") == []


def test_the_missing_part_is_named() -> None:
    names = ", ".join(f"{kind}_proj" for kind in ("q", "k", "v", "o", "gate", "up", "down"))
    for where, text in (("v_proj", "v_proj."), (names, "gate_proj and others.")):
        part: dict[str, Curve] = {"delivery/missing_part": [Max(1.04, where)]}
        finding = run(missing(0.4, 0.4) | part, 2).finding("SYN006")
        assert finding.summary.startswith("The sampler lacks 100% of the updates of ")
        assert finding.summary.endswith(text)


def test_weights_that_the_learner_never_had() -> None:
    corrupted = missing(3.0, 9.0) | canary(unexplained=0.5)
    patient = run(corrupted, 2)
    assert patient.finding("SYN007").severity == "critical"
    assert patient.findings("SYN006") == []
    assert run(canary(unexplained=0.07), 9).findings("SYN007") == []  # of noise of .02
    assert run(canary(unexplained=0.04, noise=1e-7), 9).findings("SYN007") == []  # harmless


def late(step: int) -> float:
    """A planted run: weights eight steps late, exact at the first step."""
    return 2e-7 if step < 2 else min(0.003 * step, 0.014 + 0.001 * (step % 3))


def test_engines_that_agree_on_the_starting_weights_alone() -> None:
    finding = run({PROB: late, RATE: 1e-4}).finding("SYN008")
    assert (finding.severity, finding.remedies[0]) == ("warning", "check-weight-sync")
    assert finding.onset_step == 2
    assert "the sampler has other weights" in finding.summary


def test_other_weights_begin_where_the_mismatch_leaves_its_first_readings() -> None:
    stops = run({PROB: lambda step: 1e-4 if step < 40 else min(0.05, 0.005 * (step - 39))})
    assert 40 <= stops.finding("SYN008").onset_step <= 42


@pytest.mark.parametrize(
    "curve",
    [
        noisy(ramp(0.003, 0.009, 60), 0.0005, 1),  # bf16 engines, three times as far at the end
        noisy(0.014, 0.002, 1),  # a quantized sampler
        [0.0, *[0.014] * 80],  # the first reading may not have been measured
        [2e-7, *[2e-5] * 80],  # harmless
    ],
)
def test_other_differences_are_not_called_other_weights(curve: Curve) -> None:
    assert run({PROB: curve}).findings("SYN008") == []


def test_samples_that_are_stale_by_design_are_left_to_staleness() -> None:
    curves: dict[str, Curve] = {PROB: late}
    assert "SYN008" in {
        each.code for each in run(curves, sampler_sync_every=4).engine.diagnosis().not_applicable
    }
    assert run({**curves, "staleness/max": 4.0}).findings("SYN008") == []
    assert (
        Patient([StepRecord(100 + each.step, each.values) for each in steps(60, curves)]).findings(
            "SYN008"
        )
        == []
    )


def test_a_canary_judges_the_weights_instead() -> None:
    assert run({PROB: late, **canary()}).findings("SYN008") == []

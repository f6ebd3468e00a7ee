"""Regressions from real runs of the bundled trainer, trimmed to the metrics that matter.

`tests/benchmarks/calibrate_rules.py` makes such runs; `docs/calibration.md` says what it found.
"""

from __future__ import annotations

from pathlib import Path

from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.knobs import Setting
from tests.rules.scenario import Curve, Patient, every, healthy, noisy, ramp, steps

DATA = Path(__file__).parent / "data"


def recorded(name: str, **knobs: Setting) -> Patient:
    lines = (DATA / f"{name}.jsonl").read_bytes().splitlines()
    return Patient(map(StepRecord.from_line, lines), knobs=knobs)


def test_a_gap_that_closes_from_below_is_progress() -> None:
    """Wrong answers begin three tokens shorter than right ones, and end as long as they are."""
    assert recorded("treated_int4").findings("LEN001") == []


def test_a_format_that_is_always_right_is_no_news() -> None:
    assert recorded("treated_int4").findings("REW004") == []


def test_a_quantized_sampler_without_harm_is_one_info() -> None:
    patient = recorded("treated_int4", old_logprobs="sampler", correction="none")
    assert [each.severity for each in patient.findings("MIS003")] == ["info"]
    assert patient.raised("MIS003") == 1
    assert patient.finding("MIS003").remedies == ("tis", "sync-sampler")


def test_a_stale_sampler_is_found_and_does_not_flap() -> None:
    patient = recorded("stale_sampler", sampler_sync_every=16, old_logprobs="recompute")
    assert patient.finding("MIS003").severity == "warning"
    assert patient.finding("MIS003").remedies == ("sync-sampler", "tis")
    assert patient.raised("MIS001") <= 2


def test_a_run_that_dies_within_its_baseline_is_a_collapse_and_not_hard_prompts() -> None:
    """A learning rate twenty times too high: accuracy .47 to .2 within six steps."""
    patient = recorded("dead_within_ten")
    first = patient.engine.diagnosis().findings[0]
    assert (first.code, first.severity) == ("REW002", "critical")
    assert first.onset_step <= 30
    assert patient.raised("REW002") == 1
    symptom = min(patient.findings("GRP002"), key=lambda each: each.onset_step)
    # It warns while accuracy has not yet lost a third, so before REW002 can.
    assert (symptom.severity, symptom.remedies[0]) == ("warning", "lower-learning-rate")
    assert symptom.onset_step < first.onset_step
    assert "got worse" in symptom.summary


def test_a_reward_that_punishes_being_right_is_named_by_its_cause() -> None:
    """Accuracy .47 to .08 while the reward rises: no learning rate is to blame."""
    patient = recorded("outweighed")
    first = patient.engine.diagnosis().findings[0]
    assert (first.code, first.severity) == ("REW005", "critical")
    assert first.remedies[0] == "recheck-reward"
    assert patient.findings("REW002") == []


def test_a_verifier_that_takes_any_answer_is_seen_in_the_rollouts() -> None:
    """Reward .54 to .82; strict accuracy peaks at .64 and falls to .5."""
    finding = recorded("hacked_verifier").finding("REW005")
    assert (finding.severity, finding.active) == ("warning", True)


def test_reward_and_accuracy_that_fall_together_are_a_collapse() -> None:
    falling = noisy(ramp(0.6, 0.1, 30, begin=30), 0.05, 1)
    patient = Patient(steps(90, {"accuracy/train": falling, "reward/mean": falling}))
    assert patient.findings("REW005") == []
    assert patient.finding("REW002").severity == "critical"


def test_reward_that_parts_from_accuracy_by_noise_alone_is_quiet() -> None:
    for seed in range(10):
        accuracy: Curve = noisy(0.6, 0.06, seed)
        curves = {"accuracy/train": accuracy, "reward/mean": noisy(accuracy, 0.03, 99 - seed)}
        assert Patient(steps(300, curves)).findings("REW005") == []


def test_a_correction_in_force_makes_a_mismatch_info_until_it_is_ruinous() -> None:
    def mismatched(gap: float, difference: float, correction: str) -> Patient:
        curves = {
            **healthy(1),
            "mismatch/nll_gap": noisy(gap, 0.016, 1, low=-9),
            "mismatch/prob_diff_mean": noisy(difference, 0.002, 2),
        }
        knobs: dict[str, Setting] = {
            "correction": correction,
            "old_logprobs": "recompute",
            "sampler_sync_every": 1,
        }
        return Patient(steps(60, curves), knobs=knobs)

    codes = ("MIS001", "MIS003")
    plain, corrected = mismatched(0.08, 0.03, "none"), mismatched(0.08, 0.03, "tis_token")
    assert [plain.finding(code).severity for code in codes] == ["warning", "warning"]
    assert [plain.finding(code).remedies for code in codes] == [("tis",), ("tis",)]
    assert [corrected.finding(code).severity for code in codes] == ["info", "info"]
    assert [corrected.finding(code).remedies for code in codes] == [(), ()]
    assert "tis_token corrects for it" in corrected.finding("MIS001").summary
    ruined = mismatched(0.4, 0.1, "tis_token")
    assert [ruined.finding(code).severity for code in codes] == ["critical", "critical"]


def test_causes_come_before_symptoms_and_the_most_severe_first() -> None:
    """The sampler's log-probabilities as old policy: the clip saturates at the same step."""
    curves: dict[str, Curve] = {
        **healthy(1),
        "mismatch/first_ratio_off": 0.7,
        "mismatch/prob_diff_mean": noisy(0.006, 0.0005, 1),
        "clip/low_rate": noisy(0.05, 0.004, 2),
        "kl/old_policy/k3": noisy(0.04, 0.004, 3),
    }
    patient = Patient(steps(10, curves), knobs={"old_logprobs": "sampler"})
    codes = [change.finding.code for step, change in patient.changes if step == 2]
    assert codes == ["MIS002", "CLP001"]
    assert patient.finding("CLP001").remedies[0] == "recompute-old-logprobs"


def test_groups_that_thin_out_with_a_rising_reward_are_not_a_constant_reward() -> None:
    """A log of reward and groups alone, as trainers without a notion of correctness write it."""
    flat, reward = noisy(ramp(0.1, 0.65, 80), 0.05, 1), noisy(ramp(0.5, 0.88, 80), 0.03, 2)
    patient = Patient(steps(120, {"groups/zero_variance_rate": flat, "reward/mean": reward}))
    assert patient.alarms() == []


def test_a_penalty_that_nobody_incurs_is_no_news() -> None:
    curves = {**healthy(1), "reward/component/overlong/mean": 0.0}
    assert Patient(steps(60, curves)).findings("REW004") == []


def test_a_plateau_after_a_collapse_is_the_collapse() -> None:
    low = noisy(ramp(0.5, 0.1, 30, begin=20), 0.03, 1)
    curves: dict[str, Curve] = {
        **healthy(1),
        "accuracy/train": low,
        "reward/mean": low,
        "accuracy/heldout": every(10, low),
    }
    patient = Patient(steps(180, curves))
    assert patient.finding("REW002").severity == "critical"
    assert patient.findings("REW001") == []

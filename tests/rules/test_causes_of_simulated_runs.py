"""Causes that the simulated runs of `make planted-runs` had and that no first line named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from grpodoctor.monitor.diagnosis.diagnose import Diagnosis
from grpodoctor.monitor.replay import replay
from grpodoctor.runs.records import Manifest
from tests.rules.scenario import Curve, Patient, every, healthy, noisy, ramp, steps

ENTROPY, LENGTH, REWARD, ACCURACY = "entropy/mean", "length/mean", "reward/mean", "accuracy/train"
FLAT, RIGHT, WRONG = (
    "groups/zero_variance_rate",
    "groups/all_correct_rate",
    "groups/all_incorrect_rate",
)
CLIPPED, RATE, HELDOUT = "clip/any_rate", "optimizer/learning_rate", "accuracy/heldout"


def run(curves: dict[str, Curve], count: int = 80) -> Patient:
    return Patient(steps(count, {REWARD: noisy(0.4, 0.02, 1), **curves}))


def diagnosed(folder: Path, curves: dict[str, Curve], count: int = 100) -> Diagnosis:
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_bytes(Manifest().to_json())
    records = steps(count, curves)
    (folder / "steps.jsonl").write_bytes(b"".join(record.to_line() for record in records))
    return replay(folder).report.diagnosis


def at(step: int, before: float, after: float) -> Callable[[int], float]:
    """A level that changes at a step."""
    return lambda number: before if number < step else after


def saturating(last: float, scale: float = 0.01) -> Curve:
    """An outcome that rises for twenty steps and then stays."""
    return noisy(ramp(0.4, last, 20), scale, 2)


@pytest.mark.parametrize(
    ("entropy", "length", "outcome", "severity"),
    [
        (0.003, 150, 0.6, "warning"),
        (0.003, 600, 0.6, "info"),
        (0.003, 150, 0.8, "info"),
    ],
)
def test_a_stalled_policy_whose_responses_must_repeat_has_collapsed(
    tmp_path: Path, entropy: float, length: float, outcome: float, severity: str
) -> None:
    curves: dict[str, Curve] = {
        ENTROPY: noisy(ramp(0.5, entropy, 40), 1e-5, 1),
        LENGTH: noisy(length, 2, 3),
        REWARD: saturating(outcome),
    }
    found = diagnosed(tmp_path, curves, 110)
    cause = next(each.cause for each in found.problems if each.cause.code == "ENT001")
    assert cause.severity == severity
    assert found.verdict.code == ("ENT001" if severity == "warning" else "")


def test_a_collapse_is_dated_to_the_fall_and_not_to_what_it_leads_to(tmp_path: Path) -> None:
    alike = ramp(0.4, 1.0, 30, begin=50)
    curves: dict[str, Curve] = {
        ENTROPY: noisy(ramp(0.5, 0.002, 40), 1e-5, 1),
        LENGTH: noisy(4000, 20, 3),
        REWARD: noisy(0.6, 0.01, 2),
        FLAT: alike,
        RIGHT: lambda step: 0.6 * alike(step),
        WRONG: lambda step: 0.4 * alike(step),
    }
    found = diagnosed(tmp_path, curves, 120)
    assert found.verdict.code == "ENT001"
    assert 30 <= found.problems[0].cause.onset_step <= 40


def test_one_reward_for_all_prompts_is_no_effect_of_a_certain_policy(tmp_path: Path) -> None:
    reward = ramp(-2.1, -1.0, 8)
    curves: dict[str, Curve] = {
        ENTROPY: ramp(0.5, 0.04, 10),
        REWARD: reward,
        "reward/max": reward,
        "reward/min": reward,
    }
    assert diagnosed(tmp_path, curves, 45).verdict.code == "GRP004"


@pytest.mark.parametrize(
    ("entropy", "code"), [(0.3, "GRP004"), (0.0005, "")], ids=["diverse", "certain"]
)
def test_copies_count_although_the_reward_rose_before(
    tmp_path: Path, entropy: float, code: str
) -> None:
    """A policy that became certain has equal groups too, and learned what it could."""
    curves: dict[str, Curve] = {
        ENTROPY: noisy(ramp(0.5, entropy, 40), 1e-5, 1),
        LENGTH: noisy(1000, 10, 3),
        REWARD: saturating(0.77),
        ACCURACY: saturating(0.77),
        FLAT: noisy(at(40, 0.4, 0.965), 0.003, 4),
        RIGHT: noisy(at(40, 0.3, 0.75), 0.003, 5),
        WRONG: noisy(at(40, 0.1, 0.215), 0.003, 6),
    }
    assert diagnosed(tmp_path, curves, 120).verdict.code == code


def test_spreads_show_copies_where_groups_are_not_counted() -> None:
    curves: dict[str, Curve] = {
        REWARD: noisy(0.7, 0.02, 1),
        "reward/std": noisy(0.45, 0.01, 2),
        "groups/reward_std": noisy(at(40, 0.3, 0.008), 0.001, 3),
    }
    finding = run(curves).finding("GRP004")
    assert finding.summary.endswith("responses to one prompt are alike.")
    assert abs(finding.onset_step - 40) <= 2
    assert run({**curves, "groups/reward_std": noisy(0.1, 0.01, 3)}).findings("GRP004") == []
    assert run({**curves, REWARD: noisy(0.95, 0.01, 1)}).findings("GRP004") == []


def ruined(first: float, share: float) -> dict[str, Curve]:
    """A reward that is lost after the first updates, with the share that they clipped."""
    return {
        REWARD: lambda step: first if step < 1 else 0.02,
        CLIPPED: lambda step: share if step < 1 else 0.001,
        RATE: 3e-4,
    }


def test_first_updates_that_ruin_the_policy_are_too_large() -> None:
    finding = run(ruined(0.5, 0.09)).finding("OPT006")
    assert finding.onset_step == 0
    assert run(ruined(0.5, 0.02)).findings("OPT006") == []
    far: Curve = lambda step: 0.03 if step < 1 else 0.001  # noqa: E731 - a curve
    assert run({**ruined(0.5, 0.03), "kl/old_policy/k3": far}).finding("OPT006").onset_step == 0
    assert run(ruined(0.03, 0.09)).findings("OPT006") == []


def test_a_burst_after_a_collapse_has_nothing_to_lose() -> None:
    lost: Curve = lambda step: 0.5 if step < 20 else 0.0  # noqa: E731 - a curve
    burst: Curve = lambda step: 0.3 if step in (20, 60) else 0.001  # noqa: E731 - a curve
    finding = run({REWARD: lost, CLIPPED: burst, RATE: 1e-5}, 100).finding("OPT006")
    assert finding.onset_step == 20
    assert finding.summary.endswith("reward fell from 0.5 to 0.")


def test_a_burst_before_a_fall_of_negative_rewards_is_found() -> None:
    lost: Curve = lambda step: -1.0 if step < 20 else -3.0  # noqa: E731 - a curve
    burst: Curve = lambda step: 0.3 if step == 20 else 0.001  # noqa: E731 - a curve
    assert run({REWARD: lost, CLIPPED: burst, RATE: 1e-5}, 60).finding("OPT006").onset_step == 20


def test_a_jump_of_entropy_after_a_drift_is_dated_to_the_jump() -> None:
    def drifting(step: int) -> float:
        return 0.68 + 0.001 * step + (min(step - 90, 30) * 0.1 if step > 90 else 0.0)

    curves: dict[str, Curve] = {ENTROPY: noisy(drifting, 0.003, 1), REWARD: noisy(0.4, 0.02, 2)}
    assert 88 <= run(curves, 130).finding("ENT002").onset_step <= 93


def test_a_kl_that_does_not_grow_is_that_of_another_reference() -> None:
    kl = "kl/reference/k3"
    level: dict[str, Curve] = {kl: noisy(0.3, 0.02, 1), RATE: 1e-6, REWARD: noisy(0.5, 0.03, 2)}
    assert run(level).finding("KLD003").onset_step == 0
    growing: dict[str, Curve] = {**level, kl: noisy(lambda step: 0.15 + 0.02 * step, 0.01, 1)}
    assert run(growing).findings("KLD003") == []
    lost: Curve = lambda step: 0.5 if step < 1 else 0.02  # noqa: E731 - a curve
    assert run({**level, REWARD: lost}).findings("KLD003") == []
    decaying: Curve = lambda step: 1e-4 * 0.7**step  # noqa: E731 - a curve
    assert run({**level, RATE: decaying}).findings("KLD003") == []


def evaluated(metric: str, *shares: float) -> dict[str, Curve]:
    return {
        metric: every(20, lambda step: shares[min(step // 20, len(shares) - 1)]),
        REWARD: noisy(ramp(0.4, 0.9, 60), 0.02, 1),
    }


def test_three_evaluations_that_lose_half_while_the_reward_rises_are_enough() -> None:
    """The shares have three digits, which do not show how many responses there are."""
    name, shares = "reward/heldout", (0.42, 0.239, 0.124)
    finding = run(evaluated(name, *shares), 60).finding("REW003")
    assert "3 evaluations" in finding.summary
    assert run(evaluated(name, 0.42, 0.34, 0.3), 60).findings("REW003") == []
    assert run(evaluated(name, 0.1, 0.06, 0.04), 60).findings("REW003") == []
    flat = noisy(0.4, 0.02, 1)
    assert run({**evaluated(name, *shares), REWARD: flat}, 60).findings("REW003") == []


def test_three_evaluations_of_known_size_need_four_standard_errors() -> None:
    """The test runs have 128 held-out responses, so an error is .04."""
    assert run(evaluated(HELDOUT, 0.42, 0.24, 0.125), 60).finding("REW003").severity == "warning"
    assert run(evaluated(HELDOUT, 0.42, 0.34, 0.25), 60).findings("REW003") == []


def test_a_lowered_limit_comes_before_the_reward_that_it_costs() -> None:
    curves: dict[str, Curve] = {
        LENGTH: noisy(at(60, 80, 47), 1, 1),
        "length/max": at(60, 300, 50),
        REWARD: noisy(at(60, 0.6, 0.2), 0.02, 2),
    }
    assert run(curves, 120).finding("LEN003").onset_step == 60


@pytest.mark.parametrize(("growth", "is_found"), [(2.1, False), (3.5, True)])
def test_longer_responses_need_a_clearer_rise_as_an_excuse(growth: float, is_found: bool) -> None:
    """The rise is two standard errors."""
    curves: dict[str, Curve] = {
        LENGTH: noisy(ramp(600, 600 * growth, 30), 10, 1),
        REWARD: lambda step: 0.4 + 0.005 * min(step, 16) + (0.05 if step % 2 else -0.05),
    }
    assert bool(run(curves).findings("LEN004")) == is_found


def test_a_level_policy_needs_no_gradient_norm_where_groups_vary() -> None:
    curves: dict[str, Curve] = {
        "entropy/sampled": noisy(0.36, 0.01, 1),
        LENGTH: noisy(480, 8, 2),
        REWARD: noisy(0.5, 0.02, 3),
        RATE: 5e-7,
        "groups/effective_rate": noisy(0.75, 0.03, 4),
    }
    assert run(curves, 120).finding("OPT005").summary.startswith("Entropy and length are level")
    uncounted = {name: curve for name, curve in curves.items() if not name.startswith("groups/")}
    assert run(uncounted, 120).findings("OPT005") == []


def test_a_large_jump_within_ordinary_mismatch_is_a_warning() -> None:
    name = "mismatch/prob_diff_mean"
    assert run({name: noisy(at(40, 0.0005, 0.012), 1e-5, 1)}).finding("SYN003").severity == (
        "warning"
    )
    assert run({name: noisy(at(40, 0.003, 0.012), 1e-5, 1)}).findings("SYN003") == []
    assert run({name: noisy(at(40, 0.003, 0.05), 1e-5, 1)}).finding("SYN003").severity == (
        "critical"
    )


def test_a_component_for_length_that_costs_correctness_is_a_warning() -> None:
    length = ramp(400, 4000, 60)
    part, correct = "reward/component/length/mean", "reward/component/correct/mean"

    def paid(lost: Curve) -> dict[str, Curve]:
        noise = noisy(length, 30, 1)
        return {
            LENGTH: noise,
            part: lambda step: 0.001 * noise(step),  # type: ignore[operator]
            correct: noisy(lost, 0.02, 2),
            REWARD: noisy(ramp(0.8, 4.2, 60), 0.3, 3),
        }

    finding = run(paid(ramp(0.5, 0.15, 30, begin=30)), 100).finding("REW013")
    assert finding.severity == "warning"
    assert "correct fell from 0.5" in finding.summary
    assert run(paid(0.5), 100).finding("REW013").severity == "info"


def test_a_part_that_is_not_paid_any_more_changes_the_highest_reward() -> None:
    def unpaid(heldout: Curve) -> dict[str, Curve]:
        return {
            "reward/max": at(30, 1.55, 1.0),
            REWARD: noisy(at(30, 1.2, 0.75), 0.03, 1),
            HELDOUT: every(3, heldout),
        }

    finding = run(unpaid(ramp(0.6, 0.8, 60))).finding("REW016")
    assert (finding.severity, finding.onset_step) == ("warning", 30)
    assert run(unpaid(at(30, 0.7, 0.5))).findings("REW016") == []


def test_the_reward_of_kept_groups_shows_another_scale() -> None:
    curves = healthy(1) | {"reward/kept_mean": noisy(at(40, 6.0, 0.6), 0.01, 1)}
    del curves[REWARD]
    assert Patient(steps(80, curves)).finding("REW016").onset_step == 40


def test_an_accuracy_that_ended_after_two_readings_gives_way_to_the_reward() -> None:
    """ROLL logs no accuracy in steps without a correct response."""
    curves = ruined(0.5, 0.4) | {ACCURACY: lambda step: 0.5 if step < 2 else None}
    assert run(curves).finding("OPT006").onset_step == 0


def test_a_reward_for_length_is_dated_to_the_first_of_the_compared_readings() -> None:
    length = noisy(ramp(400, 4000, 60), 30, 1)
    curves: dict[str, Curve] = {LENGTH: length, REWARD: lambda step: 0.001 * length(step)}  # type: ignore[operator]
    assert run(curves).finding("REW013").onset_step <= 5


def test_a_setting_below_the_mean_length_is_not_the_limit_in_force() -> None:
    curves: dict[str, Curve] = {
        LENGTH: noisy(at(30, 4000, 2000), 20, 1),
        REWARD: noisy(at(30, 0.6, 0.2), 0.02, 2),
    }
    lowered = Patient(steps(70, curves), knobs={"max_length": 2150})
    assert lowered.finding("LEN003").onset_step == 30


def test_a_reward_that_falls_is_no_coin_toss() -> None:
    """An eighth of the groups of four have equal rewards, as tosses give."""
    few: dict[str, Curve] = {FLAT: 0.125, "groups/size": 4}
    level = noisy(0.5, 0.03, 1)
    falling = noisy(ramp(0.6, 0.4, 80), 0.01, 1)
    shape: dict[str, int] = {"prompts_per_batch": 32, "group_size": 4}

    def tossed(curve: Curve) -> list[str]:
        exact = lambda step: round(128 * curve(step)) / 128  # type: ignore[operator]  # noqa: E731
        patient = Patient(steps(100, {**few, REWARD: exact}), knobs=dict(shape))
        return [finding.code for finding in patient.findings("REW018")]

    assert tossed(level) == ["REW018"]
    assert tossed(falling) == []


def test_a_router_loss_is_a_note_once_the_reward_has_risen(tmp_path: Path) -> None:
    curves: dict[str, Curve] = {
        "experts/auxiliary_loss": 0.01,
        REWARD: noisy(ramp(0.4, 0.8, 100, begin=70), 0.03, 1),
    }
    assert diagnosed(tmp_path, curves, 200).verdict.kind == "healthy"

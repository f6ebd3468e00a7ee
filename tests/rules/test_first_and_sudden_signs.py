"""Signs in the first updates, in one step, and in what stays the same for the whole run."""

from __future__ import annotations

import math
import random

import pytest

from tests.rules.scenario import Curve, Patient, every, noisy, ramp
from tests.rules.test_causes_of_trained_runs import at, run

LENGTH, REWARD, ACCURACY = "length/mean", "reward/mean", "accuracy/train"
HELDOUT, ENTROPY, NORM = "accuracy/heldout", "entropy/mean", "optimizer/grad_norm"
CLIPPED, LOSS, RATE = "clip/any_rate", "optimizer/loss", "optimizer/learning_rate"


def clipping(entropy: Curve, reward: Curve, clipped: Curve = 0.05) -> Patient:
    """A run whose first updates clip many of its uncertain tokens."""
    curves: dict[str, Curve] = {
        CLIPPED: noisy(clipped, 0.002, 1),
        ENTROPY: noisy(entropy, 0.004, 2),
        REWARD: noisy(reward, 0.02, 3),
        RATE: 1e-4,
    }
    return run(curves, 80)


@pytest.mark.parametrize(("rise", "severity"), [(0.4, "info"), (0.0, "warning")])
def test_clips_that_leave_the_entropy_as_it_was_are_wrong_old_logprobs(
    rise: float, severity: str
) -> None:
    reward = ramp(0.4, 0.4 + rise, 60)
    patient = clipping(0.25, reward)
    assert (patient.finding("MIS002").severity, patient.findings("OPT006")) == (severity, [])
    assert clipping(0.25, reward, 0.01).findings("MIS002") == []
    # Many updates per batch clip fewer tokens once the policy has found the format.
    assert clipping(0.25, reward, ramp(0.05, 0.01, 6)).findings("MIS002") == []


@pytest.mark.parametrize(("kl", "is_named"), [(0.02, True), (ramp(0.02, 1.2, 60), False)])
def test_a_distance_that_every_step_adds_to_is_no_sign_of_wrong_logprobs(
    kl: Curve, is_named: bool
) -> None:
    """Many updates per batch: the first step has moved the policy as far as each later one."""
    curves: dict[str, Curve] = {
        CLIPPED: noisy(ramp(0.2, 0.06, 60), 0.004, 1),
        ENTROPY: noisy(ramp(0.9, 0.3, 60), 0.004, 2),
        "kl/reference/k3": kl,
        REWARD: noisy(0.4, 0.02, 3),
    }
    found = [each.summary for each in run(curves, 80).findings("MIS002")]
    assert any("clipped from the start" in text for text in found) == is_named


def test_clips_that_are_logged_after_the_first_updates_say_nothing_of_them() -> None:
    late = noisy(0.05, 0.002, 1)
    patient = clipping(0.25, 0.4, lambda step: late(step) if step >= 40 else None)  # type: ignore[operator]
    assert patient.findings("MIS002") == []


def test_clips_that_take_the_entropy_at_once_are_updates_that_are_too_large() -> None:
    lost = ramp(0.25, 0.02, 6)
    patient = clipping(lost, 0.3)
    assert patient.finding("OPT006").severity == "warning"
    assert patient.findings("MIS002") == []
    assert clipping(lost, ramp(0.3, 0.9, 60)).finding("OPT006").severity == "info"
    assert clipping(lost, 0.3, 0.01).findings("OPT006") == []
    assert clipping(ramp(0.25, 0.02, 60), 0.3).findings("OPT006") == []


def sudden(length: Curve, entropy: Curve, reward: Curve, **others: Curve) -> list[str]:
    curves: dict[str, Curve] = {
        LENGTH: noisy(length, 5, 1),
        ENTROPY: noisy(entropy, 0.004, 2),
        REWARD: noisy(reward, 0.02, 3, low=-9.0),
        NORM: noisy(0.2, 0.01, 4),
        HELDOUT: every(5, noisy(ramp(0.4, 0.8, 100), 0.02, 5)),
    }
    return [each.severity for each in run({**curves, **others}, 110).findings("SYN009")]


def test_responses_that_are_shorter_at_once_have_another_stop_token() -> None:
    learned_again: Curve = lambda step: 0.7 if step < 60 else 0.35 + 0.01 * (step - 60)  # noqa: E731
    shorter = at(60, 300, 120)
    assert sudden(shorter, 0.3, learned_again) == ["info"]
    assert sudden(at(60, 300, 270), 0.3, learned_again) == []
    assert sudden(shorter, 0.3, 0.7) == []
    assert sudden(shorter, 0.3, at(60, -1.0, -0.85)) == []  # it earns more
    assert sudden(shorter, 0.3, at(60, -0.5, -0.8)) == ["info"]
    cut = noisy(at(60, 0.0, 0.6), 0.01, 6)
    assert sudden(shorter, 0.3, learned_again, **{"length/truncated_rate": cut}) == []


def test_responses_that_are_longer_and_more_certain_at_once_have_other_weights() -> None:
    longer = at(60, 120, 300)
    assert sudden(longer, at(60, 0.3, 0.18), ramp(0.4, 0.9, 100)) == ["info"]
    assert sudden(longer, at(60, 0.3, 0.36), at(60, 0.9, 0.8)) == []  # harder prompts
    raised = at(59, 1e-6, 1e-4)
    assert sudden(longer, at(60, 0.3, 0.18), 0.6, **{RATE: raised}) == []


def test_training_outcomes_below_a_level_evaluation_hint_at_wrong_labels() -> None:
    def notes(heldout: Curve, reward: Curve, cut: float = 0.0) -> list[str]:
        curves: dict[str, Curve] = {
            REWARD: noisy(reward, 0.01, 1),
            HELDOUT: every(10, noisy(heldout, 0.015, 2)),
            "length/truncated_rate": cut,
        }
        findings = run(curves, 160).findings("REW008")
        return [each.summary for each in findings if "labels" in each.summary]

    slow = ramp(0.24, 0.26, 160)
    assert len(notes(0.48, slow)) == 1
    assert notes(ramp(0.48, 0.7, 160), slow) == []
    assert notes(0.26, slow) == []
    assert notes(0.48, slow, cut=0.2) == []


def test_gradients_that_are_missing_now_and_then_are_a_note() -> None:
    draw = random.Random(3)
    gaps = {step for step in range(60, 120) if draw.random() < 0.6}

    def found(equal: float, begin: int = 0) -> list[str]:
        def logged(level: float) -> Curve:
            return lambda step: None if step in gaps or step < begin else level

        curves: dict[str, Curve] = {
            LOSS: logged(0.1),
            NORM: logged(0.2),
            REWARD: noisy(ramp(0.3, 0.9, 100), 0.02, 1),
            "groups/zero_variance_rate": noisy(equal, 0.0, 2),
        }
        return [each.severity for each in run(curves, 120).findings("OPT003")]

    assert found(0.4) == ["info"]
    assert found(1.0) == []  # no group varies, so nothing is to be updated
    assert found(0.4, begin=100) == []  # logged late


def test_a_limit_that_every_batch_reaches_and_half_of_it_is_usual() -> None:
    def notes(longest: Curve, mean: float) -> list[str]:
        curves: dict[str, Curve] = {
            "length/max": longest,
            LENGTH: noisy(mean, 3, 1),
            REWARD: noisy(ramp(0.3, 0.5, 100), 0.02, 2),
        }
        return [each.severity for each in run(curves, 100).findings("LEN003")]

    assert notes(120, 78) == ["info"]
    assert notes(120, 40) == []
    assert notes(noisy(110, 5, 3), 78) == []


def test_failures_that_vanish_for_twenty_batches_are_no_learning() -> None:
    draw = random.Random(5)

    def shares(end: float) -> list[float]:
        rates = [0.5 + 0.45 * min(step / 40, 1.0) for step in range(90)]
        rates = [rate if step < 62 else end for step, rate in enumerate(rates)]
        return [sum(draw.random() < rate for _ in range(208)) / 208 for rate in rates]

    def findings(end: float) -> list[str]:
        return [each.summary for each in run({REWARD: shares(end)}, 90).findings("REW016")]

    assert len(findings(1.0)) == 1
    assert findings(0.99) == []


def test_a_component_that_is_scaled_is_another_reward() -> None:
    def part(scale: float, *, spread: float) -> dict[str, Curve]:
        mean, std = "reward/component/correct/mean", "reward/component/correct/std"
        levels = ramp(0.5, 0.9, 50)
        return {
            REWARD: noisy(lambda step: levels(step) * (scale if step >= 60 else 1), 0.004, 1),
            mean: noisy(lambda step: levels(step) * (scale if step >= 60 else 1), 0.004, 1),
            std: lambda step: (
                math.sqrt(levels(step) * (1 - levels(step))) * (spread if step >= 60 else 1)
            ),
        }

    assert len(run(part(0.1, spread=0.1), 90).findings("REW016")) == 1
    assert run(part(0.1, spread=0.9), 90).findings("REW016") == []  # a verifier that rejects


def limited(before: float, after: float, mean: float, reward: Curve) -> list[str]:
    """A run whose longest responses have one length since step 60; truncation counts none."""
    curves: dict[str, Curve] = {
        "length/max": lambda step: before + (step % 7) if step < 60 else after,
        LENGTH: noisy(at(60, 60, mean), 2, 1),
        "length/truncated_rate": 0.0,
        REWARD: noisy(reward, 0.02, 2, low=-9.0),
    }
    findings = run(curves, 100).findings("LEN002")
    return [each.severity for each in findings if each.onset_step == 60]


def test_a_longest_response_that_is_shorter_in_every_batch_is_a_lowered_limit() -> None:
    lost = at(60, ramp(0.4, 0.6, 60), 0.35)
    assert limited(230, 60, 45, lost) == ["warning"]
    assert limited(66, 60, 45, lost) == []
    assert limited(230, 60, 15, lost) == []  # it cuts hardly any response
    assert limited(230, 60, 45, ramp(0.4, 0.6, 60)) == []
    assert limited(230, 60, 45, 0.0) == []
    assert limited(230, 60, 45, -0.5) == []
    assert limited(230, 60, 45, at(60, -0.5, -0.8)) == ["warning"]


def test_a_gap_far_above_the_first_one_is_a_note_below_ordinary_levels() -> None:
    def notes(level: float, steps_of_rise: int = 20) -> list[str]:
        gap: Curve = noisy(ramp(2e-6, level, steps_of_rise), 1e-7, 1)
        curves: dict[str, Curve] = {
            "mismatch/kl_k3": lambda step: 2e-6 if step == 0 else gap(step),  # type: ignore[operator]
            REWARD: noisy(ramp(0.3, 0.9, 80), 0.02, 2),
        }
        return [each.severity for each in run(curves, 100).findings("SYN008")]

    assert notes(0.003) == ["info"]
    assert notes(0.0002) == []
    assert "warning" in notes(0.02)


def test_a_rate_that_jumps_and_takes_the_entropy_is_a_note_once_the_run_is_back() -> None:
    def notes(after: float, entropy: float) -> list[tuple[str, bool]]:
        recovered = ramp(0.4, 0.9, 50, begin=50)
        curves: dict[str, Curve] = {
            RATE: at(50, 1e-6, after),
            ENTROPY: noisy(at(50, 0.3, entropy), 0.004, 1),
            REWARD: noisy(recovered, 0.02, 2),
        }
        return [
            (each.severity, any(shown.metric == ENTROPY for shown in each.evidence))
            for each in run(curves, 110).findings("OPT006")
        ]

    assert notes(1e-4, 0.02) == [("info", True)]
    assert notes(1e-4, 0.25) == []
    assert notes(1e-6, 0.02) == []

"""Mechanisms that trained runs showed and no first line named: weights, verifiers, settings."""

from __future__ import annotations

import random

import pytest

from grpodoctor.rules.reward.rewards_ignore_prompts import zero_variance_share
from grpodoctor.vocabulary.knobs import Setting
from tests.rules.scenario import Curve, Patient, every, noisy, ramp, steps
from tests.rules.test_causes_of_trained_runs import at, run

LENGTH, REWARD, ACCURACY = "length/mean", "reward/mean", "accuracy/train"
HELDOUT, ENTROPY, NORM = "accuracy/heldout", "entropy/mean", "optimizer/grad_norm"
CLIPPED, CUT = "clip/any_rate", "length/truncated_rate"
RATE = "optimizer/learning_rate"


def replaced(**others: Curve) -> Patient:
    """At step 60 the policy is another one."""
    curves: dict[str, Curve] = {
        REWARD: noisy(at(60, ramp(0.4, 0.8, 55), 0.1), 0.02, 1),
        LENGTH: noisy(at(60, ramp(200, 300, 55), 900), 6, 2),
        ENTROPY: noisy(at(60, ramp(0.5, 0.4, 55), 0.1), 0.01, 3),
        NORM: noisy(0.2, 0.01, 4),
        HELDOUT: every(5, noisy(at(60, ramp(0.4, 0.8, 55), 0.1), 0.02, 5)),
    }
    return run({**curves, **others}, 90)


def test_a_policy_that_changes_at_once_after_ordinary_updates_was_replaced() -> None:
    finding = replaced().finding("SYN009")
    assert (finding.severity, finding.onset_step, finding.active) == ("critical", 60, True)


@pytest.mark.parametrize(
    "others",
    [
        {NORM: noisy(lambda step: 2.0 if 57 <= step < 60 else 0.2, 0.01, 4)},  # a large update
        {HELDOUT: every(5, noisy(ramp(0.4, 0.8, 55), 0.02, 5))},  # the prompts changed
        {ENTROPY: noisy(ramp(0.5, 0.4, 55), 0.01, 3)},  # the policy is as certain as before
        {REWARD: noisy(ramp(0.8, 0.1, 30, begin=50), 0.02, 1)},  # a slope
        {"optimizer/learning_rate": at(59, 1e-6, 1e-4)},
    ],
)
def test_what_else_may_have_changed_the_policy_excludes_it(others: dict[str, Curve]) -> None:
    assert replaced(**others).findings("SYN009") == []


def flipped(component: float, heldout: Curve, mean: Curve) -> list[str]:
    curves: dict[str, Curve] = {
        REWARD: mean,
        HELDOUT: every(5, heldout),
        "reward/component/format/mean": noisy(
            at(50, ramp(0.4, 1.0, 45), component), 0.02, 2, low=-9
        ),
        "reward/component/correct/mean": noisy(0.5, 0.02, 3),
    }
    return [finding.summary for finding in run(curves, 80).findings("REW016")]


def test_a_reward_that_falls_below_zero_at_once_changed_unlike_the_policy() -> None:
    well, lost = noisy(0.7, 0.02, 4), noisy(at(50, 0.7, 0.1), 0.02, 4)
    falls: Curve = noisy(at(50, ramp(0.9, 1.5, 45), -0.4), 0.03, 1, low=-9)
    kept: Curve = noisy(ramp(0.9, 1.5, 45), 0.03, 1)
    assert "evaluations stay" in flipped(0.3, well, falls)[0]
    assert flipped(0.3, lost, falls) == []  # the policy collapsed
    assert "component format" in flipped(-1.0, lost, kept)[0]
    assert flipped(-0.2, lost, kept) == []


def old_logprobs(clipped: float, kl: float, rise: float, **others: Curve) -> Patient:
    curves: dict[str, Curve] = {
        CLIPPED: noisy(clipped, 0.001, 1),
        "kl/reference/k3": noisy(ramp(kl, kl + 0.01, 60), 0.0003, 2),
        REWARD: noisy(ramp(0.4, 0.4 + rise, 60), 0.02, 3),
    }
    return run({**curves, **others}, 80)


@pytest.mark.parametrize(("rise", "severity"), [(0.4, "info"), (0.0, "warning")])
def test_clipping_and_distance_in_the_first_step_are_wrong_old_logprobs(
    rise: float, severity: str
) -> None:
    finding = old_logprobs(0.03, 0.02, rise).finding("MIS002")
    assert (finding.severity, finding.onset_step) == (severity, 0)
    assert old_logprobs(0.003, 0.02, rise).findings("MIS002") == []
    assert old_logprobs(0.03, 0.0, rise).findings("MIS002") == []  # many updates per batch


def tosses(since: int, *, correlated: bool) -> Patient:
    """Groups of 8; prompts stop to differ at a step, or differ until the end."""
    draw = random.Random(7)
    rows: list[tuple[float, float]] = []
    for step in range(120):
        mean = min(0.5 + 0.004 * step, 0.85)
        prompts = [min(max(draw.gauss(mean, 0.35), 0.0), 1.0) for _ in range(32)]
        if step >= since and not correlated:
            prompts = [mean] * 32
        groups = [sum(draw.random() < rate for _ in range(8)) for rate in prompts]
        rows.append((sum(groups) / 256, sum(count in (0, 8) for count in groups) / 32))
    curves: dict[str, Curve] = {
        REWARD: [mean for mean, _ in rows],
        "groups/zero_variance_rate": [flat for _, flat in rows],
    }
    knobs: dict[str, Setting] = {"group_size": 8, "prompts_per_batch": 32}
    return Patient(steps(120, curves, knobs=knobs))


def test_rewards_that_stop_to_depend_on_the_prompt_are_coin_tosses_since_then() -> None:
    finding = tosses(60, correlated=False).finding("REW018")
    assert finding.severity == "warning"
    assert 55 <= finding.onset_step <= 70
    assert tosses(60, correlated=True).findings("REW018") == []
    assert zero_variance_share(0.85, 8, 0.0) < 0.3


def test_responses_that_are_cut_throughout_are_a_note() -> None:
    rising: Curve = noisy(ramp(0.3, 0.5, 80), 0.02, 2)
    finding = run({CUT: noisy(ramp(0.19, 0.13, 80), 0.01, 1), REWARD: rising}).finding("LEN002")
    assert (finding.severity, finding.active) == ("info", True)
    learned = run({CUT: noisy(ramp(0.19, 0.04, 80), 0.01, 1), REWARD: rising})
    assert not any(finding.active for finding in learned.findings("LEN002"))


def test_training_prompts_that_stay_behind_solved_held_out_ones_are_never_solved() -> None:
    def behind(first: float, last: float) -> list[str]:
        curves: dict[str, Curve] = {
            REWARD: noisy(ramp(first, last, 80), 0.02, 1),
            HELDOUT: every(10, noisy(ramp(0.5, 0.95, 80), 0.01, 2)),
        }
        return [finding.severity for finding in run(curves).findings("GRP002") if finding.active]

    assert behind(0.3, 0.58) == ["info"]
    assert behind(0.3, 0.9) == []
    assert behind(0.15, 0.6) == []  # hard prompts that are learned as well


def test_a_fall_that_the_evaluations_share_needs_less() -> None:
    def fallen(heldout: Curve) -> list[str]:
        curves: dict[str, Curve] = {
            REWARD: noisy(ramp(0.7, 0.5, 40, begin=60), 0.01, 1),
            HELDOUT: every(5, heldout),
        }
        found = run(curves).findings("REW002")
        return [finding.severity for finding in found if finding.active]

    assert fallen(noisy(ramp(0.7, 0.45, 40, begin=60), 0.01, 2)) == ["warning"]
    assert fallen(noisy(0.7, 0.01, 2)) != ["warning"]


def test_a_fall_within_one_reading_is_a_note_until_the_reward_is_back() -> None:
    def note(last: float) -> list[tuple[str, bool]]:
        reward = noisy(at(50, 0.8, 0.0), 0.015, 1)
        later = noisy(ramp(0.55, last, 60, begin=50), 0.015, 1)
        curve: Curve = lambda step: reward(step) if step < 50 else later(step)  # noqa: E731
        rising = every(5, noisy(ramp(0.5, 0.9, 110), 0.01, 2))
        found = run({REWARD: curve, HELDOUT: rising}).findings("REW002")
        return [(finding.severity, finding.active) for finding in found]

    assert ("info", True) in note(0.68)
    assert not any(active for _, active in note(0.82))


def test_a_clip_of_whole_responses_and_rerouted_experts_are_no_wrong_old_logprobs() -> None:
    gap: dict[str, Curve] = {"mismatch/logprob_diff_mean": noisy(0.03, 0.001, 5)}
    curves: dict[str, Curve] = {
        CLIPPED: noisy(0.1, 0.005, 1),
        **gap,
        REWARD: noisy(0.4, 0.02, 3),
    }

    def severities(loss: str) -> list[str]:
        patient = Patient(steps(80, curves), knobs={"loss": loss})
        return [finding.severity for finding in patient.findings("MIS002")]

    assert severities("ppo_clip") == ["info"]  # a mixture of experts shows such a gap as well
    assert severities("gspo") == severities("cispo") == []


def test_held_out_prompts_that_are_easier_from_the_start_say_nothing_of_the_others() -> None:
    curves: dict[str, Curve] = {
        REWARD: noisy(ramp(0.4, 0.5, 80), 0.02, 1),
        HELDOUT: every(10, noisy(ramp(0.78, 0.9, 80), 0.01, 2)),
    }
    assert run(curves).findings("GRP002") == []


def test_a_learning_rate_alone_does_not_measure_an_update() -> None:
    def replaced_with(measure: str) -> tuple[str, bool]:
        curves: dict[str, Curve] = {
            REWARD: noisy(at(60, 0.8, 0.1), 0.02, 1),
            LENGTH: noisy(at(60, 300, 900), 6, 2),
            ENTROPY: noisy(at(60, 0.4, 0.1), 0.01, 3),
            measure: noisy(1e-6, 1e-8, 4) if measure == RATE else noisy(0.2, 0.01, 4),
        }
        finding = run(curves, 90).finding("SYN009")
        return finding.severity, finding.summary.endswith("probably other weights.")

    assert replaced_with(NORM) == ("critical", False)
    assert replaced_with(RATE) == ("warning", True)

"""What runs of a trained policy with planted mechanisms showed: causes that look alike, and not."""

from __future__ import annotations

import pytest

from tests.rules.scenario import Curve, Patient, every, noisy, ramp, steps

LENGTH, CUT = "length/mean", "length/truncated_rate"
REWARD, ACCURACY = "reward/mean", "accuracy/train"
HELDOUT, ENTROPY, KL = "accuracy/heldout", "entropy/mean", "kl/reference/k3"
WRONG, RIGHT = "groups/all_incorrect_rate", "groups/all_correct_rate"


def run(curves: dict[str, Curve], count: int = 120) -> Patient:
    return Patient(steps(count, curves))


def at(step: int, before: Curve, after: float) -> Curve:
    """A course that goes on at another level from a step on."""

    def value(now: int) -> float:
        known = before(now) if callable(before) else before
        assert isinstance(known, int | float)
        return float(known) if now < step else after

    return value


@pytest.mark.parametrize("begin", [10, 60])
def test_length_that_grew_before_the_best_outcome_did_not_cost_it(begin: int) -> None:
    """A verifier breaks at step 70, after the policy has learned to write longer responses."""
    length = noisy(ramp(300, 620, 40, begin=begin), 8, 1)
    reward = noisy(at(70, ramp(0.3, 0.7, 60), 0.2), 0.02, 2)
    found = run({LENGTH: length, REWARD: reward}, 110).findings("LEN006")
    assert [finding.code for finding in found] == ["LEN006"] * (begin == 60)


def test_harder_prompts_lengthen_responses_and_held_out_evaluations_rise() -> None:
    curves: dict[str, Curve] = {
        LENGTH: noisy(ramp(300, 900, 60, begin=40), 8, 1),
        REWARD: noisy(ramp(0.8, 0.2, 60, begin=40), 0.02, 2),
    }
    assert run(curves).finding("LEN006").active
    rising = {HELDOUT: every(5, noisy(ramp(0.4, 0.8, 110), 0.01, 3))}
    assert run({**curves, **rising}).findings("LEN006") == []


def test_evaluations_that_turn_out_to_rise_end_a_warning_of_growing_truncation() -> None:
    curves: dict[str, Curve] = {CUT: noisy(ramp(0.0, 0.14, 40, begin=20), 0.01, 1)}
    assert run(curves, 110).finding("LEN002").severity == "warning"
    rising = {HELDOUT: every(15, noisy(ramp(0.4, 0.8, 110), 0.01, 3))}
    found = run({**curves, **rising}, 110).findings("LEN002")
    assert [each.severity for each in found if each.active] == ["info"]
    assert [each.severity for each in found if not each.active] == ["warning"]


def test_a_loss_that_follows_the_advantages_shows_no_penalty() -> None:
    """Rewards as advantages: the loss is minus their mean, which rises with the KL."""
    kl = noisy(ramp(0.0, 0.08, 60), 0.01, 1)

    def advantage(step: int) -> float:
        return 0.3 + 9 * float(kl(step) or 0)

    curves: dict[str, Curve] = {KL: kl, "optimizer/loss": lambda step: -advantage(step)}
    assert run(curves, 60).finding("KLD004").severity == "critical"
    assert run({**curves, "advantage/mean": advantage}, 60).findings("KLD004") == []


@pytest.mark.parametrize(
    ("others", "is_back"),
    [
        ({KL: at(45, ramp(0.0, 0.05, 40), 0.0005), LENGTH: at(45, ramp(200, 300, 40), 200)}, True),
        ({KL: ramp(0.0, 0.05, 40)}, False),  # harder prompts: the weights stay
        ({LENGTH: at(45, 200, 340)}, False),
    ],
)
def test_starting_weights_return_kl_and_length_as_well(
    others: dict[str, Curve], *, is_back: bool
) -> None:
    scales = {KL: 0.0005, LENGTH: 4}
    curves: dict[str, Curve] = {
        ENTROPY: noisy(at(45, ramp(0.5, 0.25, 40), 0.5), 0.02, 1),
        REWARD: noisy(at(45, ramp(0.4, 0.7, 40), 0.4), 0.02, 2),
        **{name: noisy(curve, scales[name], 3) for name, curve in others.items()},
    }
    assert bool(run(curves, 80).findings("SYN010")) == is_back


def test_a_small_kl_in_the_first_step_is_that_of_another_reference() -> None:
    """The first reading precedes every update, and updates would raise the next ones."""

    def first(kl: Curve, mismatch: float = 0.0005) -> Patient:
        return run({KL: kl, REWARD: noisy(ramp(0.4, 0.6, 60), 0.02, 2), "mismatch/kl_k3": mismatch})

    finding = first(noisy(0.025, 0.001, 1)).finding("KLD003")
    assert (finding.severity, finding.onset_step) == ("info", 0)
    assert first(noisy(lambda step: 0.003 * step, 0.0003, 1)).findings("KLD003") == []
    assert first(noisy(0.004, 0.0003, 1)).findings("KLD003") == []
    assert first(noisy(0.025, 0.001, 1), mismatch=0.02).findings("KLD003") == []


def test_prompts_that_are_never_solved_are_a_note_in_a_run_that_learns() -> None:
    curves: dict[str, Curve] = {
        WRONG: noisy(0.4, 0.03, 1),
        RIGHT: noisy(ramp(0.05, 0.45, 80), 0.03, 2),
        REWARD: noisy(ramp(0.3, 0.55, 80), 0.02, 3),
    }
    finding = run(curves).finding("GRP002")
    assert (finding.severity, finding.active) == ("info", True)
    assert "never solved" in finding.summary
    learned = {**curves, WRONG: noisy(ramp(0.4, 0.26, 80), 0.01, 1)}
    assert run(learned).findings("GRP002") == []


def test_a_judge_that_drifts_does_not_jump() -> None:
    """The mean rises by a half within fifteen steps, while the accuracy stays."""
    accuracy: Curve = noisy(0.5, 0.02, 1)
    drifting: Curve = noisy(ramp(0.4, 0.9, 30, begin=30), 0.008, 2)
    assert run({REWARD: drifting, ACCURACY: accuracy}, 80).findings("REW016") == []
    jumping: Curve = noisy(at(45, 0.4, 0.65), 0.008, 2)
    assert run({REWARD: jumping, ACCURACY: accuracy}, 80).finding("REW016").onset_step == 45


@pytest.mark.parametrize(
    ("first", "last", "is_reported"),
    [
        (0.42, 0.52, True),
        (0.42, 0.78, False),  # most of the rise is that of the task
        (0.15, 0.3, False),  # another kind of prompts
    ],
)
def test_solved_prompts_whose_rise_the_evaluations_hardly_share(
    first: float, last: float, *, is_reported: bool
) -> None:
    solved = noisy(ramp(0.45, 1.0, 50), 0.01, 1)
    curves: dict[str, Curve] = {
        REWARD: lambda step: min(float(solved(step) or 0), 1.0),
        HELDOUT: every(5, noisy(ramp(first, last, 50), 0.015, 2)),
    }
    assert bool(run(curves).findings("REW008")) == is_reported


@pytest.mark.parametrize(
    ("evaluations", "is_low"),
    [
        ([0.5, 0.86], False),  # their median is that of a policy which has learned since
        ([0.5, 0.55], True),
        ([0.55], False),  # as high as the training accuracy was at that step
    ],
)
def test_rare_evaluations_lag_behind_a_policy_that_learns(
    evaluations: list[float], *, is_low: bool
) -> None:
    heldout = {20 + 40 * index: value for index, value in enumerate(evaluations)}
    curves: dict[str, Curve] = {
        RIGHT: noisy(ramp(0.1, 0.75, 50), 0.02, 1),
        REWARD: noisy(ramp(0.4, 0.92, 50), 0.01, 2),
        HELDOUT: heldout.get,
    }
    found = run(curves, 100).findings("GRP001")
    assert any(finding.severity == "warning" for finding in found) == is_low


def test_evaluations_that_rise_exclude_an_explosion_after_the_best_outcome_left_the_window() -> (
    None
):
    """Easy prompts came first, so the best outcome is that of the first steps."""
    curves: dict[str, Curve] = {
        LENGTH: noisy(ramp(300, 900, 60, begin=140), 8, 1),
        REWARD: noisy(lambda step: max(0.9 - step / 60, 0.7) - 0.55 * (step > 150), 0.02, 2),
        HELDOUT: every(5, noisy(ramp(0.4, 0.8, 220), 0.01, 3)),
    }
    assert run(curves, 220).findings("LEN006") == []
    del curves[HELDOUT]
    assert run(curves, 220).finding("LEN006").active

from __future__ import annotations

from functools import partial
from statistics import fmean

import pytest

from grpodoctor.rules.shared.health.run_health import is_solved
from grpodoctor.vocabulary.values import NotApplicable
from tests.rules.scenario import (
    Curve,
    Patient,
    altered,
    every,
    noisy,
    ramp,
    reward_only,
    steps,
    successful,
)

ACCURACY, REWARD, HELDOUT = "accuracy/train", "reward/mean", "accuracy/heldout"

run = partial(altered, count=120)


def test_a_flat_run_with_flat_evaluations_is_a_warning() -> None:
    curves = {**successful(noisy(0.4, 0.05, 1)), HELDOUT: every(10, noisy(0.4, 0.03, 2))}
    finding = run(curves, count=150).finding("REW001")
    assert finding.severity == "warning"
    assert finding.onset_step >= 99


def test_a_plateau_after_learning_or_without_evaluation_is_info() -> None:
    learned = {
        **successful(noisy(ramp(0.4, 0.6, 60), 0.05, 1)),
        HELDOUT: every(5, noisy(ramp(0.4, 0.6, 60), 0.02, 2)),
    }
    patient = run(learned, count=300)
    assert {each.severity for each in patient.findings("REW001")} == {"info"}
    assert patient.findings("REW001")[0].onset_step > 120
    flat = run(successful(noisy(0.4, 0.05, 1)), count=150, without=(HELDOUT,))
    assert (flat.findings("REW001"), flat.finding("REW020").severity) == ([], "info")


def test_the_level_of_a_plateau_is_its_mean() -> None:
    """Batches of four: the median is one of the few values that they can take."""
    reward = [0.0] * 30 + [1.5, 1.0, 0.2] * 70
    patient = Patient(steps(240, {REWARD: reward}))
    assert f"({fmean(reward[190:]):.3g})" in patient.findings("REW001")[0].summary
    flat = Patient(steps(150, {REWARD: [0.0, 0.0, 1.5] * 50}))
    assert "Reward 0.5 → 0.5," in flat.finding("REW020").summary


def test_flat_training_with_rising_evaluations_is_slow_health() -> None:
    """A healthy public run: training .61 throughout, held-out .62 to .65."""
    curves = {
        **successful(noisy(0.61, 0.05, 3)),
        HELDOUT: every(5, noisy(ramp(0.612, 0.650, 112), 0.008, 4)),
    }
    assert run(curves, count=113).findings("REW001") == []


def test_the_ceiling_is_no_plateau() -> None:
    ceiling = lambda step: min(1.0, float(noisy(0.97, 0.02, 5)(step) or 0))  # noqa: E731 - a curve
    assert run(successful(ceiling), count=200).findings("REW001") == []
    near = lambda step: min(1.0, float(noisy(0.92, 0.03, 5)(step) or 0))  # noqa: E731 - a curve
    assert run({REWARD: near}, count=200, without=(ACCURACY,)).findings("REW001") == []


def test_a_rising_run_has_no_plateau() -> None:
    assert run(successful(noisy(ramp(0.3, 0.7, 250), 0.05, 6)), count=200).findings("REW001") == []


def test_a_reward_that_was_never_given_is_a_warning() -> None:
    finding = run(successful(0.0), count=40).finding("REW004")
    assert (finding.severity, finding.remedies) == ("warning", ("recheck-reward",))


def test_a_mean_that_repeats_while_groups_vary_belongs_to_an_earlier_batch() -> None:
    equal = "groups/zero_variance_rate"
    stuck = lambda step: noisy(ramp(0.3, 0.7, 40), 0.04, 3)(step) if step < 40 else 0.703125  # noqa: E731 - a curve
    curves: dict[str, Curve] = {REWARD: stuck, equal: 0.0, "reward/std": 0.46}
    finding = run(curves, without=(ACCURACY,)).finding("REW004")
    assert finding.severity == "warning"
    assert abs(finding.onset_step - 40) <= 1
    assert "although groups vary" in finding.summary
    solved = run({**curves, equal: ramp(0.0, 1.0, 40)}, without=(ACCURACY,))
    assert solved.findings("REW004") == []


def test_ranks_within_a_group_have_one_mean_and_one_spread() -> None:
    """Ranks of eight responses: every batch has the mean .5, and every group the same spread."""
    ranks: dict[str, Curve] = {
        REWARD: 0.5, "groups/zero_variance_rate": 0.0, "groups/reward_std": 0.3273,
    }  # fmt: skip
    for spread in ({}, {"reward/std": 0.3273}):
        finding = Patient(steps(80, {**ranks, **spread})).finding("REW004")
        assert finding.severity == "info"
        assert "ranks" in finding.summary
    other_batch: dict[str, Curve] = {**ranks, "reward/std": 0.5}
    assert Patient(steps(80, other_batch)).finding("REW004").severity == "warning"


def test_absent_and_not_applicable() -> None:
    names = (ACCURACY, REWARD, HELDOUT)
    codes = {"REW001", "REW002", "REW003", "REW004", "REW005"}
    skipped = {each.code for each in run({}, without=names).engine.diagnosis().skipped}
    assert codes <= skipped
    patient = run(dict.fromkeys(names, NotApplicable("no reward function")))
    assert {code for code in codes if patient.why_not(code)} == codes
    assert run(dict.fromkeys(names, 0.0), count=150).findings("REW002") == []


def test_a_reward_that_stays_at_its_ceiling_is_saturation() -> None:
    """A public run: 1 in nine measurements of ten from the start, .98 in the others."""
    mostly = reward_only(lambda step: 0.99 if step % 10 == 3 else 1.0)
    finding = mostly.finding("REW006")
    assert (finding.severity, finding.remedies[0]) == ("info", "recheck-reward")
    assert "from the first reading" in finding.summary
    assert finding.onset_step == 0
    learned = reward_only(lambda step: min(1.0, 0.3 + 0.1 * step)).finding("REW006")
    assert learned.remedies[0] == "keep-checkpoint"
    assert learned.onset_step == 7
    assert reward_only(1.0).findings("REW006") == []  # given to any response: REW004's
    assert reward_only(noisy(0.9, 0.02, 1)).findings("REW006") == []
    assert reward_only(noisy(1.4, 0.1, 1)).findings("REW006") == []


def test_a_full_reward_beside_a_low_held_out_accuracy_is_no_success() -> None:
    rising = {REWARD: lambda step: min(1.0, 0.3 + 0.1 * step)}
    fell = Patient(steps(60, {**rising, HELDOUT: ramp(0.4, 0.28, 60)})).finding("REW006")
    assert (fell.severity, fell.remedies) == ("warning", ("recheck-reward", "harder-prompts"))
    assert fell.summary.endswith("held-out accuracy is only 28%.")
    rose = Patient(steps(60, {**rising, HELDOUT: ramp(0.4, 0.6, 60)})).finding("REW006")
    assert (rose.severity, rose.remedies) == ("warning", ("harder-prompts",))
    high = Patient(steps(60, {**rising, HELDOUT: 0.9})).finding("REW006")
    assert (high.severity, high.remedies[0]) == ("info", "keep-checkpoint")


@pytest.mark.parametrize(("last", "is_warned"), [(0.03, True), (0.18, False)])
def test_a_full_reward_beside_a_low_held_out_reward(last: float, is_warned: bool) -> None:
    """The first evaluation is after the rise, so it is compared with the policy at the start."""
    evaluations = {20: 0.21, 30: last + 0.02, 40: last + 0.01, 50: last}
    curves: dict[str, Curve] = {
        REWARD: lambda step: min(1.0, 0.26 + 0.1 * step),
        "reward/heldout": evaluations.get,
    }
    finding = Patient(steps(60, curves)).finding("REW006")
    assert finding.severity == ("warning" if is_warned else "info")
    assert ("the held-out reward is only" in finding.summary) is is_warned


@pytest.mark.parametrize(
    ("name", "level", "is_confirmed"),
    [
        (HELDOUT, 0.99, True),
        (HELDOUT, 0.6, False),
        ("reward/heldout", 0.99, True),
        ("reward/heldout", 1.0, False),  # as it is if the function pays for anything
    ],
)
def test_held_out_prompts_confirm_a_reward_that_is_full_from_the_start(
    name: str, level: float, is_confirmed: bool
) -> None:
    patient = Patient(steps(60, {REWARD: 1.0, name: level}))
    severities = {finding.severity for finding in patient.findings("REW004")}
    assert severities == ({"info"} if is_confirmed else {"warning"})
    assert bool(patient.findings("REW006")) is is_confirmed


def test_a_median_at_the_ceiling_with_a_lower_mean_is_no_solution() -> None:
    """A public run: 1 in most batches of four responses, .87 on average."""
    rewards = [(1.0, 1.0, 0.5, 1.0, 1.0, 0.75, 1.0)[step % 7] for step in range(120)]
    assert reward_only(rewards, count=120).findings("REW006") == []
    solved = is_solved(reward_only(rewards, count=120).engine.chart)
    accurate = is_solved(Patient(steps(120, {ACCURACY: rewards})).engine.chart)
    assert (solved, accurate) == (False, False)
    outage = [0.0 if step == 116 else 0.99 for step in range(120)]
    assert is_solved(Patient(steps(120, {ACCURACY: outage})).engine.chart)


def test_saturated_groups_are_left_to_their_rule() -> None:
    curves = {**successful(ramp(0.5, 1.0, 20)), "groups/all_correct_rate": ramp(0.1, 1.0, 20)}
    patient = run(curves)
    assert patient.findings("REW006") == []
    assert patient.findings("GRP001")


def test_a_reward_that_settles_below_its_best_is_constant() -> None:
    """A public run: -2.1 to -1, and then -1 for every response, but for a batch now and then."""
    reward = [-2.1, -1.7, -1.3, -1.2, -1.1, -1.05] + [-1.0] * 40
    reward[30] = -1.03
    finding = reward_only(reward).finding("REW004")
    assert (finding.severity, finding.active) == ("warning", True)
    assert "-1 for 20 readings" in finding.summary
    solved = [0.5, 0.7, 0.9] + [1.0] * 60
    assert reward_only(solved).findings("REW004") == []
    held = [round(0.5 + 0.01 * (step // 10), 2) for step in range(120)]
    assert reward_only(held).findings("REW004") == []


def test_a_reward_whose_noise_hides_a_rise_is_a_note() -> None:
    """A planted run: a reward with noise of five times its spread, .40 then .50."""
    noise = noisy(lambda step: 0.4 if step < 60 else 0.5, 0.36, 1, low=-9)
    patient = Patient(steps(120, {REWARD: noise}))
    assert patient.findings("REW001") == []
    summary = patient.finding("REW020").summary
    assert float(summary.split("noise of ")[1].rstrip(".")) > 0.15


def test_a_reward_that_never_rises_in_a_long_run_is_a_warning() -> None:
    """A public run: 9,751 steps at -1.84, with a reward that varies and no evaluation."""
    finding = Patient(steps(620, {REWARD: noisy(-1.84, 0.5, 1, low=-9)})).finding("REW001")
    assert finding.severity == "warning"
    assert "readings" in finding.summary
    slow = noisy(ramp(0.70, 0.76, 1500), 0.05, 2)
    found = Patient(steps(1500, {REWARD: slow})).findings("REW001")
    assert not [each for each in found if each.active and each.severity != "info"]


def test_a_mean_of_batches_that_settles_after_some_at_that_level_is_constant() -> None:
    """Half of the earlier batches at the level do not make twenty in a row chance."""
    early = [(-1.0, 0.2 + step / 500)[step % 2] for step in range(60)]
    finding = Patient(steps(110, {REWARD: [*early, *[-1.0] * 50]})).finding("REW004")
    assert (finding.severity, finding.active) == ("warning", True)

from __future__ import annotations

import random

import pytest

from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import NotApplicable
from tests.rules.scenario import Curve, Patient, healthy, noisy, ramp, steps
from tests.rules.scenario import altered as run

FLAT, RIGHT, WRONG = (
    "groups/zero_variance_rate",
    "groups/all_correct_rate",
    "groups/all_incorrect_rate",
)
CANCELLED, EFFECTIVE = "groups/cancelled_rate", "groups/effective_rate"
ACCURACY, REWARD = "accuracy/train", "reward/mean"
SPLIT = (RIGHT, WRONG, CANCELLED, EFFECTIVE)


def split(right: float, wrong: float, *, other: float = 0.0, cancelled: float = 0.0) -> dict:
    """Group rates that add up."""
    flat = right + wrong + other + cancelled
    return {
        RIGHT: noisy(right, 0.02, 1) if right < 1 else right,
        WRONG: noisy(wrong, 0.02, 2) if wrong < 1 else wrong,
        CANCELLED: cancelled,
        FLAT: flat,
        EFFECTIVE: 1 - flat,
    }


def outcome(level: float) -> dict[str, Curve]:
    curve = noisy(level, 0.02, 3) if 0 < level < 1 else level
    return {ACCURACY: curve, REWARD: curve}


def test_thinning_with_success_is_health() -> None:
    patient = run({}, count=120)
    for code in ("GRP001", "GRP002", "GRP003", "GRP004"):
        assert patient.findings(code) == []


def test_groups_that_are_all_right_are_info() -> None:
    finding = run({**split(0.9, 0.0), **outcome(0.97), "accuracy/heldout": 0.95}).finding("GRP001")
    assert finding.severity == "info"
    assert "all-correct" in finding.summary


def test_easy_training_prompts_with_unsolved_held_out_ones_are_a_warning() -> None:
    curves = {**split(0.8, 0.0), **outcome(0.93), "accuracy/heldout": noisy(0.4, 0.02, 4)}
    finding = run(curves).finding("GRP001")
    assert finding.severity == "warning"
    assert "held-out accuracy" in finding.summary
    fell = run({**curves, "accuracy/heldout": ramp(0.4, 0.3, 60)}).finding("GRP001")
    assert fell.remedies[0] == "recheck-reward"
    rose = run({**curves, "accuracy/heldout": ramp(0.4, 0.6, 60)}).finding("GRP001")
    assert rose.remedies[0] == "harder-prompts"
    once = run({**curves, "accuracy/heldout": lambda step: 0.4 if step == 40 else None})
    assert once.finding("GRP001").remedies[0] == "harder-prompts"


@pytest.mark.parametrize(("heldout", "severity"), [(0.79, "info"), (0.6, "warning")])
def test_a_held_out_accuracy_near_that_of_the_training_is_no_contradiction(
    heldout: float, severity: str
) -> None:
    curves = {**split(0.64, 0.02), **outcome(0.86), "accuracy/heldout": heldout}
    assert run(curves).finding("GRP001").severity == severity


def test_groups_that_are_all_wrong_are_found_within_ten_steps_and_turn_critical() -> None:
    curves = {**split(0.0, 1.0), **outcome(0.0)}
    early = run(curves, count=10).finding("GRP002")
    assert (early.severity, early.remedies[0]) == ("warning", "recheck-reward")
    assert run(curves, count=40).finding("GRP002").severity == "critical"


def test_prompts_that_nobody_can_solve_are_info() -> None:
    """30 % unsolvable prompts: .33 of the groups, and dynamic sampling pays."""
    finding = run({**split(0.12, 0.33), **outcome(0.44)}).finding("GRP002")
    assert finding.severity == "info"
    assert "dynamic-sampling" in finding.remedies


def test_half_of_the_groups_without_progress_are_a_warning() -> None:
    assert run({**split(0.0, 0.65), **outcome(0.1)}).finding("GRP002").severity == "warning"


def test_a_hard_beginning_that_is_overcome_is_no_alarm() -> None:
    """A healthy agent run: .75 of the groups wrong at first, half of them over thirty steps."""
    rising = noisy(ramp(0.12, 0.6, 60), 0.05, 5)
    curves = {WRONG: noisy(ramp(0.75, 0.1, 50), 0.08, 6), ACCURACY: rising, REWARD: rising}
    assert [each.code for each in run(curves, count=120).alarms() if each.code == "GRP002"] == []


def test_cancelled_components_are_found_and_critical_without_any_signal() -> None:
    some = run(split(0.1, 0.05, cancelled=0.4)).finding("GRP003")
    assert some.severity == "warning"
    every = {**split(0.0, 0.0, cancelled=1.0)}
    assert run(every, count=10).finding("GRP003").severity == "warning"
    assert run(every, count=40).finding("GRP003").severity == "critical"


def test_a_group_that_cancels_by_accident_is_quiet() -> None:
    curves = split(0.2, 0.02, cancelled=0.05)
    assert run(curves).findings("GRP003") == []


def test_components_that_cancel_are_seen_without_groups() -> None:
    """The components' deviations are not zero and the total's is."""
    curves: dict[str, Curve] = {
        "reward/std": 0,
        "reward/component/right/std": 0.4,
        "reward/component/brief/std": 0.4,
    }
    assert run(curves, without=SPLIT).finding("GRP003").severity == "critical"


def test_a_component_of_weight_zero_does_not_cancel() -> None:
    curves: dict[str, Curve] = {"reward/std": 0, "reward/component/logged/std": 0.4}
    without = (*SPLIT, "reward/component/task/std")
    assert run(curves, without=without).findings("GRP003") == []


def test_a_reward_that_is_always_given_is_named() -> None:
    """Always 1: accuracy .47, no variance anywhere, hardly a group right or wrong throughout."""
    curves = {**split(0.013, 0.034, other=0.953), ACCURACY: noisy(0.47, 0.05, 7), REWARD: 1.0}
    patient = run(curves)
    assert patient.finding("GRP004").severity == "critical"
    assert patient.findings("GRP001") == []
    assert patient.findings("GRP002") == []


@pytest.mark.parametrize(("level", "code"), [(0.82, "GRP001"), (0.1, "GRP002"), (0.47, "GRP004")])
def test_without_a_split_the_accuracy_tells(level: float, code: str) -> None:
    flat = {0.82: 0.75, 0.1: 0.75, 0.47: 0.9}[level]
    patient = run({FLAT: noisy(flat, 0.03, 8), ACCURACY: noisy(level, 0.03, 9)}, without=SPLIT)
    fired = [c for c in ("GRP001", "GRP002", "GRP004") if patient.findings(c)]
    assert fired == [code]


def test_without_split_and_accuracy_the_cause_stays_open() -> None:
    """A public run: no variance at all, a graded reward of .88, all responses cut."""
    curves: dict[str, Curve] = {
        FLAT: noisy(0.998, 0.003, 1),
        REWARD: noisy(0.88, 0.01, 2),
        "length/truncated_rate": 1,
    }
    patient = run(curves, without=(*SPLIT, ACCURACY))
    assert patient.finding("GRP004").severity == "critical"
    assert patient.finding("LEN002").severity == "critical"
    assert patient.findings("GRP001") == []
    assert patient.findings("GRP002") == []


def test_a_solved_task_without_accuracy_is_easy() -> None:
    solving = ramp(0.7, 1.0, 12)
    curves: dict[str, Curve] = {FLAT: ramp(0.3, 1.0, 12), REWARD: solving}
    patient = run(curves, without=(*SPLIT, ACCURACY, "accuracy/heldout"))
    assert patient.finding("GRP001").severity == "info"
    assert patient.findings("GRP004") == []


def test_a_reward_of_one_from_the_first_step_on_is_not_taken_for_success() -> None:
    curves: dict[str, Curve] = {FLAT: 1.0, REWARD: 1.0, "reward/std": 0}
    patient = run(curves, without=(*SPLIT, ACCURACY, "accuracy/heldout"))
    assert patient.finding("GRP004").severity == "critical"
    assert patient.finding("REW004").severity == "warning"
    assert patient.findings("GRP001") == []


def test_components_that_cancel_in_every_group_are_not_called_hard_prompts() -> None:
    curves: dict[str, Curve] = {FLAT: 1.0, CANCELLED: 1.0, REWARD: 0.0, "groups/effective_rate": 0}
    patient = run(
        curves, without=("groups/all_correct_rate", "groups/all_incorrect_rate", ACCURACY)
    )
    assert patient.engine.diagnosis().findings[0].code == "GRP003"
    assert patient.findings("GRP002") == patient.findings("GRP004") == []


@pytest.mark.parametrize("code", ["GRP001", "GRP002", "GRP003", "GRP004"])
def test_absent_zero_and_not_applicable(code: str) -> None:
    names = (FLAT, *SPLIT, "reward/std")
    patient = run({}, without=names)
    (skipped,) = [each for each in patient.engine.diagnosis().skipped if each.code == code]
    assert skipped.how
    patient = run(dict.fromkeys(names, 0))
    assert patient.findings(code) == []
    patient = run(dict.fromkeys(names, NotApplicable("one response per prompt")))
    assert patient.why_not(code) == "one response per prompt"


def with_critic(curves: dict[str, Curve]) -> Patient:
    return Patient(steps(60, {**healthy(1), **curves}), knobs={"advantage": "gae"})


def test_where_a_critic_is_the_baseline_groups_without_variance_are_no_finding() -> None:
    flat = {**split(0.4, 0.55), **outcome(0.42)}
    assert run(flat).findings("GRP002") != []
    assert with_critic(flat).findings("GRP002") == []
    easy = {**split(0.9, 0.0), **outcome(0.97)}
    assert run(easy).findings("GRP001") != []
    patient = with_critic(easy)
    assert patient.findings("GRP001") == []
    reasons = {each.code: each.why for each in patient.engine.diagnosis().not_applicable}
    assert "critic" in reasons["GRP001"]


def test_even_a_critic_learns_nothing_where_everything_is_wrong() -> None:
    finding = with_critic({**split(0.0, 1.0), **outcome(0.0)}).finding("GRP002")
    assert finding.severity == "critical"


def test_with_a_critic_components_cancel_only_over_the_whole_batch() -> None:
    parts = {f"reward/component/{name}/std": 0.4 for name in ("correct", "format")}
    lost = {**split(0.1, 0.1, cancelled=0.5), **parts}
    assert run(lost).findings("GRP003") != []
    assert with_critic(lost).findings("GRP003") == []
    assert with_critic({**lost, "reward/std": 0.0}).findings("GRP003") != []


def test_one_group_to_a_batch_gives_a_share_and_not_all_or_nothing() -> None:
    """A public run, one prompt a step: flat in three steps of five, reward .9 of up to 2."""
    rng = random.Random(5)
    flat = [float(rng.random() < 0.6) for _ in range(300)]
    reward = [rng.choice([2.0, 2.0, 1.5, 0.5, -0.3, -0.6]) for _ in range(300)]
    curves: dict[str, Curve] = {"groups/zero_variance_rate": flat, "reward/mean": reward}
    found = Patient(steps(300, curves)).findings("GRP004")
    assert {each.severity for each in found} == {"info"}
    assert all("have equal rewards" in each.summary for each in found)
    assert not any("100%" in each.summary for each in found)


def test_groups_that_thin_out_while_a_reward_of_its_own_scale_rises_are_no_news() -> None:
    curves: dict[str, Curve] = {
        "groups/zero_variance_rate": ramp(0.1, 0.7, 100),
        "reward/mean": noisy(ramp(1.0, 4.6, 100), 0.05, 1),
    }
    assert Patient(steps(120, curves)).findings("GRP004") == []


def verl(curves: dict[str, Curve], *, count: int = 60, **knobs: Setting) -> Patient:
    """A log without any count of groups."""
    return Patient(steps(count, curves), knobs=knobs)


def test_equal_extremes_of_the_reward_show_that_no_group_varies() -> None:
    """A public run: -1 for every response, after a rise from -2.1."""
    reward = ramp(-2.1, -1.0, 8)
    curves: dict[str, Curve] = {REWARD: reward, "reward/max": reward, "reward/min": reward}
    finding = verl({**curves, "optimizer/grad_norm": 0.005}).finding("GRP004")
    assert (finding.severity, finding.active) == ("critical", True)
    assert "the same reward in 100% of batches" in finding.summary
    varying: dict[str, Curve] = {**curves, "reward/min": -9.0}
    patient = verl(varying)
    assert patient.findings("GRP004") == []
    assert "GRP004" in {each.code for each in patient.engine.diagnosis().skipped}


def test_advantages_of_zero_while_rewards_differ_are_no_constant_reward() -> None:
    """One response per prompt: half of them are correct, and every advantage is 0."""
    curves: dict[str, Curve] = {
        REWARD: noisy(0.8, 0.05, 4), "reward/max": 1.0, "reward/min": 0.0,
        "advantage/max": 0.0, "advantage/min": 0.0,
    }  # fmt: skip
    finding = verl(curves).finding("GRP004")
    assert "although rewards range from 0 to 1" in finding.summary
    assert finding.remedies[0] == "larger-groups"


def test_starvation_at_a_success_rate_near_zero_is_starvation() -> None:
    rare = noisy(0.004, 0.002, 1)
    finding = verl({ACCURACY: rare, REWARD: rare}, group_size=8).finding("GRP002")
    assert (finding.severity, finding.remedies[0]) == ("critical", "recheck-reward")
    assert "At least 9" in finding.summary
    unknown = verl({ACCURACY: rare, REWARD: rare}).finding("GRP002")
    assert unknown.severity == "warning"
    assert "of responses are correct" in unknown.summary
    never = verl({REWARD: 0.0}).finding("GRP002")
    assert never.severity == "critical"
    assert "No response was rewarded" in never.summary


def test_a_low_reward_that_rises_or_has_another_scale_is_no_starvation() -> None:
    rising = noisy(ramp(0.002, 0.3, 20), 0.001, 2)
    assert verl({REWARD: rising}).findings("GRP002") == []
    signed = noisy(0.0, 0.01, 3, low=-9)
    patient = verl({REWARD: signed})
    assert patient.findings("GRP002") == []
    assert "GRP002" in {each.code for each in patient.engine.diagnosis().skipped}


def test_a_noisy_opening_is_no_decline() -> None:
    """Four groups per batch: the first three shares say nothing about the start."""
    rng = random.Random(3)
    wrong = [0.5, 0.25, 0.5] + [rng.choice([0.5, 0.75, 0.75, 1.0]) for _ in range(60)]
    low = noisy(0.1, 0.02, 4)
    finding = verl({WRONG: wrong, REWARD: low, ACCURACY: low}).finding("GRP002")
    assert finding.severity == "warning"
    assert "got worse" not in finding.summary


@pytest.mark.parametrize(("kl", "is_worse"), [(0.0003, False), (0.3, True)])
def test_a_policy_at_its_reference_did_not_get_worse(kl: float, is_worse: bool) -> None:
    """The first prompts were easier."""
    wrong = [0.5, 0.5, 0.5] + [1.0] * 40
    curves: dict[str, Curve] = {
        WRONG: wrong,
        REWARD: [0.03] * 3 + [0.0] * 40,
        "kl/reference/k3": kl,
    }
    finding = verl(curves).finding("GRP002")
    assert ("got worse" in finding.summary) is is_worse
    assert (finding.remedies[0] == "lower-learning-rate") is is_worse


def test_equal_groups_at_a_high_reward_are_the_correct_ones() -> None:
    """A public run: 93 % flat groups at a reward of .955 produced no finding."""
    curves: dict[str, Curve] = {FLAT: noisy(0.93, 0.02, 1), REWARD: noisy(0.955, 0.01, 2)}
    patient = verl(curves)
    assert patient.finding("GRP001").severity == "info"
    assert patient.findings("GRP004") == []


def test_starvation_that_a_lower_bound_showed_ends_when_the_bound_no_longer_does() -> None:
    # The standard deviation within groups is 0 at first, while next to nothing is rewarded.
    curves: dict[str, Curve] = {
        "groups/reward_std": lambda step: 0.0 if step < 40 else 0.4,
        "reward/mean": lambda step: 0.0 if step < 40 else 0.6,
    }
    starved, recovered = Patient(steps(40, curves)), Patient(steps(120, curves))
    assert [finding.active for finding in starved.findings("GRP002")] == [True]
    assert [finding.active for finding in recovered.findings("GRP002")] == [False]


def test_zero_variance_groups_of_a_half_solved_task_are_not_all_incorrect() -> None:
    """A public run: half of the groups without variance at an accuracy of .46."""

    def stalled(accuracy: float, share: float) -> Patient:
        curves = {FLAT: noisy(share, 0.02, 1), ACCURACY: noisy(accuracy, 0.02, 2)}
        return run({**curves, REWARD: curves[ACCURACY]}, without=SPLIT)

    half = stalled(0.46, 0.5).finding("GRP002")
    assert half.severity == "info"
    assert "About 29% of groups are all-incorrect" in half.summary
    hard = stalled(0.1, 0.8).finding("GRP002")
    assert hard.severity == "warning"
    assert "About 80% of groups are all-incorrect" in hard.summary


def stuck(length: float, reward: float = 0.64) -> Patient:
    """A public run: one short answer with one reward in two of three batches, from step 6 on."""

    def at(level: float, other: float) -> Curve:
        return lambda step: level if step > 5 and step % 3 else other + 0.02 * (step % 7 % 3 - 1)

    curves: dict[str, Curve] = {
        REWARD: at(reward, reward),
        "groups/reward_std": at(0.0, 0.2),
        "length/mean": at(length, 50.0),
    }
    return Patient(steps(60, curves))


def test_a_reward_that_is_stuck_at_one_value_is_a_warning() -> None:
    finding = stuck(9.0).finding("GRP004")
    assert (finding.severity, finding.remedies) == (
        "warning",
        ("recheck-reward", "raise-temperature"),
    )
    assert "one length (9 tokens)" in finding.summary
    assert "length/mean" in {each.metric for each in finding.evidence}


def test_a_stuck_reward_near_its_maximum_is_a_solved_one() -> None:
    assert all(each.severity == "info" for each in stuck(9.0, reward=0.97).findings("GRP004"))


@pytest.mark.parametrize(("count", "severity"), [(12, "warning"), (40, "critical")])
def test_rewards_of_exactly_zero_are_a_warning_before_twenty_readings(
    count: int, severity: str
) -> None:
    finding = Patient(steps(count, {REWARD: 0.0, "clip/any_rate": 1.0})).finding("GRP002")
    assert finding.severity == severity
    few = Patient(steps(8, {REWARD: 0.0})).findings("GRP002")
    assert few == []


def test_an_onset_is_the_first_reading_that_meets_the_condition() -> None:
    """A public run learned in its first four steps: all-correct groups .19, .37, .64, .74, .96."""
    share = [0.19, 0.37, 0.64, 0.74, 0.96, 0.97, 0.99, 1.0]
    curves: dict[str, Curve] = {FLAT: share, RIGHT: share, WRONG: 0.0, ACCURACY: 0.99}
    assert Patient(steps(40, curves)).finding("GRP001").onset_step == 2


def test_rare_success_beside_other_rewards_is_no_equal_group() -> None:
    """A public run: "no group varies", while rewards of .3 to .5 gave advantages of .9."""
    rare = lambda step: 0.125 if step % 9 == 4 else 0.0  # noqa: E731 - a curve

    def plain(curves: dict[str, Curve], count: int) -> Patient:
        return Patient(steps(count, curves))

    shaped: dict[str, Curve] = {ACCURACY: rare, REWARD: noisy(0.38, 0.08, 1)}
    finding = plain(shaped, 150).finding("GRP002")
    assert (finding.severity, finding.active) == ("warning", True)
    assert finding.summary.startswith("Only 1.5% of responses are correct in 128 readings")
    never = plain({**shaped, ACCURACY: 0.0}, 60).finding("GRP002")
    assert never.severity == "warning"
    assert never.summary.startswith("No response was correct")
    often = lambda step: 0.125 if step % 3 == 1 else 0.0  # noqa: E731 - a curve
    assert plain({**shaped, ACCURACY: often}, 150).findings("GRP002") == []
    rising = noisy(ramp(0.3, 0.8, 100), 0.05, 1)
    taught = plain({**shaped, REWARD: rising}, 150).findings("GRP002")
    assert [each for each in taught if each.active] == []
    exact = plain({ACCURACY: 0.0, REWARD: 0.0}, 60).finding("GRP002")
    assert (exact.severity, "no group varies" in exact.summary) == ("critical", True)


def test_groups_that_agree_with_themselves_while_prompts_differ_are_copies() -> None:
    finding = run({**split(0.42, 0.56), **outcome(0.43)}).finding("GRP004")
    assert (finding.severity, finding.remedies[1]) == ("warning", "raise-temperature")
    assert "responses to one prompt are alike" in finding.summary
    assert run({**split(0.42, 0.56), **outcome(0.43)}).finding("GRP002").severity == "info"


@pytest.mark.parametrize(("right", "wrong"), [(0.9, 0.08), (0.05, 0.93), (0.4, 0.45)])
def test_easy_hard_and_mixed_prompts_are_no_copies(right: float, wrong: float) -> None:
    found = run({**split(right, wrong), **outcome(right + (1 - right - wrong) / 2)})
    assert [each for each in found.findings("GRP004") if "alike" in each.summary] == []

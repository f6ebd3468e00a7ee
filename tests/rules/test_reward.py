from __future__ import annotations

import random
from statistics import fmean

import pytest

from grpodoctor.rules.shared.run_health import is_solved
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate
from tests.rules.scenario import Curve, Patient, every, healthy, noisy, ramp, steps
from tests.samples import sampled

ACCURACY, REWARD, HELDOUT = "accuracy/train", "reward/mean", "accuracy/heldout"


def run(curves: dict[str, Curve], *, count: int = 120, without: tuple[str, ...] = ()) -> Patient:
    together = {**healthy(1), **curves}
    return Patient(steps(count, {name: c for name, c in together.items() if name not in without}))


def both(curve: Curve) -> dict[str, Curve]:
    return {ACCURACY: curve, REWARD: curve}


def test_a_flat_run_with_flat_evaluations_is_a_warning() -> None:
    curves = {**both(noisy(0.4, 0.05, 1)), HELDOUT: every(10, noisy(0.4, 0.03, 2))}
    finding = run(curves, count=150).finding("REW001")
    assert finding.severity == "warning"
    assert finding.onset_step >= 99


def test_a_plateau_after_learning_or_without_evaluation_is_info() -> None:
    learned = {
        **both(noisy(ramp(0.4, 0.6, 60), 0.05, 1)),
        HELDOUT: every(5, noisy(ramp(0.4, 0.6, 60), 0.02, 2)),
    }
    patient = run(learned, count=300)
    assert {each.severity for each in patient.findings("REW001")} == {"info"}
    assert patient.findings("REW001")[0].onset_step > 120
    flat = run(both(noisy(0.4, 0.05, 1)), count=150, without=(HELDOUT,))
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
        **both(noisy(0.61, 0.05, 3)),
        HELDOUT: every(5, noisy(ramp(0.612, 0.650, 112), 0.008, 4)),
    }
    assert run(curves, count=113).findings("REW001") == []


def test_the_ceiling_is_no_plateau() -> None:
    ceiling = lambda step: min(1.0, float(noisy(0.97, 0.02, 5)(step) or 0))  # noqa: E731 - a curve
    assert run(both(ceiling), count=200).findings("REW001") == []
    near = lambda step: min(1.0, float(noisy(0.92, 0.03, 5)(step) or 0))  # noqa: E731 - a curve
    assert run({REWARD: near}, count=200, without=(ACCURACY,)).findings("REW001") == []


def test_a_rising_run_has_no_plateau() -> None:
    assert run(both(noisy(ramp(0.3, 0.7, 250), 0.05, 6)), count=200).findings("REW001") == []


def test_a_collapse_within_twenty_steps_is_found_and_critical() -> None:
    """Accuracy .45 to .12 in twenty steps, as under a quantised sampler's log-probabilities."""
    finding = run(both(noisy(ramp(0.45, 0.12, 20), 0.05, 7)), count=50).finding("REW002")
    assert finding.severity == "critical"
    assert finding.onset_step <= 35


def test_a_late_collapse_of_a_reward_with_negative_values() -> None:
    curve = noisy(ramp(0.6, -0.7, 20, begin=70), 0.1, 8, low=-1)
    finding = run({REWARD: curve}, without=(ACCURACY,)).finding("REW002")
    assert finding.evidence[0].baseline == pytest.approx(0.6, abs=0.1)


def curriculum(step: int) -> float:
    """The prompts become harder every fifty steps."""
    return ramp(0.25, 0.65, 45)(step % 50)


@pytest.mark.parametrize("count", [62, 75, 115])
def test_a_fall_through_which_held_out_accuracy_rises_is_a_note(count: int) -> None:
    heldout = every(10, noisy(ramp(0.2, 0.6, 150), 0.01, 2))
    curves = {**both(noisy(curriculum, 0.02, 1)), HELDOUT: heldout}
    patient = run(curves, count=count)
    findings = patient.findings("REW002")
    assert (findings[-1].severity, findings[-1].remedies) == ("info", ("recheck-reward",))
    assert "held-out accuracy rose" in findings[-1].summary
    assert patient.alarms() == []


@pytest.mark.parametrize("heldout", [ramp(0.5, 0.2, 100), 0.4, noisy(0.4, 0.02, 3)])
def test_a_fall_without_a_rise_elsewhere_is_an_alarm(heldout: Curve) -> None:
    curves = {**both(noisy(curriculum, 0.02, 1)), HELDOUT: every(10, heldout)}
    assert run(curves, count=75).finding("REW002").severity != "info"


def test_evaluations_before_the_fall_excuse_nothing() -> None:
    curves = {
        **both(noisy(curriculum, 0.02, 1)),
        HELDOUT: lambda step: 0.2 + step / 200 if step % 10 == 0 and step < 50 else None,
    }
    assert run(curves, count=75).finding("REW002").severity != "info"


def test_a_fall_is_over_when_the_level_is_near_the_best_again() -> None:
    """Without evaluations, the second finding of a curriculum would wait twice as long."""
    patient = run(both(noisy(curriculum, 0.02, 1)), count=149, without=(HELDOUT,))
    first, second = patient.findings("REW002")
    assert (first.active, second.active) == (False, False)
    assert second.last_step < 145


def test_noise_slow_wear_and_rare_success_are_no_collapse() -> None:
    assert run(both(noisy(ramp(0.55, 0.45, 100), 0.065, 9))).findings("REW002") == []
    rare = lambda step: 1 / 128 if step % 3 == 0 and step < 60 else 0.0  # noqa: E731 - a curve
    assert run(both(rare)).findings("REW002") == []
    around_zero = noisy(0.0, 0.1, 10, low=-1)
    assert run({REWARD: around_zero}, without=(ACCURACY,), count=600).findings("REW002") == []


def test_a_hacked_verifier_is_seen_by_the_held_out_figures() -> None:
    """The reward rises to .7 like a healthy one while true accuracy goes from .57 to .17."""
    finding = run({HELDOUT: every(10, noisy(ramp(0.57, 0.17, 40, begin=30), 0.03, 11))})
    assert finding.finding("REW003").severity == "critical"
    assert finding.finding("REW003").remedies[0] == "recheck-reward"


def test_a_held_out_drop_is_dated_where_the_evaluations_fell() -> None:
    """The levels of three evaluations show it thirty steps later."""
    shared = noisy(0.65, 0.03, 5)
    curve = every(10, lambda step: shared(step) if step <= 60 else 0.1)
    finding = run({HELDOUT: curve}, count=120).finding("REW003")
    assert (finding.severity, finding.onset_step) == ("critical", 70)


def test_over_fitting_is_a_warning() -> None:
    curve = every(5, noisy(ramp(0.7, 0.5, 60, begin=40), 0.02, 12))
    assert run({HELDOUT: curve}).finding("REW003").severity == "warning"


def test_when_training_falls_too_it_is_another_disease() -> None:
    curves = {
        **both(noisy(ramp(0.6, 0.1, 30, begin=50), 0.05, 13)),
        HELDOUT: every(5, noisy(ramp(0.6, 0.1, 30, begin=50), 0.03, 14)),
    }
    patient = run(curves)
    assert patient.findings("REW003") == []
    assert patient.finding("REW002").severity == "critical"


@pytest.mark.parametrize("seed", sampled(range(10), 3))
def test_the_noise_of_small_evaluations_is_no_fall(seed: int) -> None:
    flat = every(2, noisy(0.7, 0.041, seed))  # the binomial error of 128 prompts
    assert run({HELDOUT: flat}, count=400).findings("REW003") == []


def test_a_reward_that_was_never_given_is_a_warning() -> None:
    finding = run(both(0.0), count=40).finding("REW004")
    assert (finding.severity, finding.remedies) == ("warning", ("recheck-reward",))


def test_components_that_never_move_are_info_alongside_a_healthy_run() -> None:
    """A healthy public run: two format rewards are 0 on every one of 250 steps."""
    curves: dict[str, Curve] = {
        "reward/component/strict/mean": 0.0,
        "reward/component/language/mean": 1.0,
    }
    finding = run(curves).finding("REW004")
    assert finding.severity == "info"
    assert finding.summary.endswith("ever earned strict (0).")


def test_a_component_that_every_response_earns_is_no_news() -> None:
    """The format of the bundled tasks: 1 in nearly every step, with a slip now and then."""

    def slips(step: int) -> float:
        return 127 / 128 if step in {27, 60, 150} else 1.0

    assert run({"reward/component/format/mean": slips}, count=200).findings("REW004") == []


def test_a_component_that_comes_alive_resolves_it() -> None:
    finding = run({"reward/component/late/mean": ramp(0.0, 0.5, 20, begin=60)}).finding("REW004")
    assert not finding.active


def _forgone(task: Curve, **others: Curve) -> Patient:
    """A run that learned the format, so that nearly all of its groups have equal rewards."""
    curves: dict[str, Curve] = {
        REWARD: ramp(0.3, 1.5, 40),
        "groups/zero_variance_rate": ramp(0.3, 0.95, 40),
        "reward/component/format/mean": ramp(0.3, 1.0, 40),
        "reward/component/task/mean": task,
        **others,
    }
    return Patient(steps(100, curves))


def test_a_component_that_is_not_learned_while_the_others_are() -> None:
    rare: Curve = [0.02 if step % 9 == 3 else 0.0 for step in range(100)]
    finding = _forgone(rare).finding("REW004")
    assert finding.severity == "warning"
    assert finding.active
    assert "Component task is mostly 0" in finding.summary
    assert 25 <= finding.onset_step <= 45


@pytest.mark.parametrize(
    ("task", "others"),
    [
        (noisy(ramp(0.1, 0.5, 40), 0.02, 2), {}),  # it is learned
        ([-0.1 if step % 9 == 3 else 0.0 for step in range(100)], {}),  # a penalty
        ([0.02 if step % 9 == 3 else 0.0 for step in range(100)],
         {"groups/zero_variance_rate": noisy(0.4, 0.05, 1)}),  # the groups still differ
        ([0.02 if step % 9 == 3 else 0.0 for step in range(100)], {ACCURACY: 0.99}),  # solved
    ],
)  # fmt: skip
def test_a_rarely_earned_component_alone_is_no_fault(task: Curve, others: dict[str, Curve]) -> None:
    assert [each.severity for each in _forgone(task, **others).findings("REW004")] in ([], ["info"])


def test_absent_and_not_applicable() -> None:
    names = (ACCURACY, REWARD, HELDOUT)
    codes = {"REW001", "REW002", "REW003", "REW004", "REW005"}
    skipped = {each.code for each in run({}, without=names).engine.diagnosis().skipped}
    assert codes <= skipped
    patient = run(dict.fromkeys(names, NotApplicable("no reward function")))
    assert {code for code in codes if patient.why_not(code)} == codes
    assert run(dict.fromkeys(names, 0.0), count=150).findings("REW002") == []


def plain(reward: Curve, *, count: int = 80) -> Patient:
    """A log that says nothing of groups."""
    return Patient(steps(count, {REWARD: reward}))


def test_a_reward_that_stays_at_its_ceiling_is_saturation() -> None:
    """A public run: 1 in nine measurements of ten from the start, .98 in the others."""
    mostly = plain(lambda step: 0.99 if step % 10 == 3 else 1.0)
    finding = mostly.finding("REW006")
    assert (finding.severity, finding.remedies[0]) == ("info", "recheck-reward")
    assert "from the first reading" in finding.summary
    assert finding.onset_step == 0
    learned = plain(lambda step: min(1.0, 0.3 + 0.1 * step)).finding("REW006")
    assert learned.remedies[0] == "keep-checkpoint"
    assert learned.onset_step == 7
    assert plain(1.0).findings("REW006") == []  # given to any response: REW004's
    assert plain(noisy(0.9, 0.02, 1)).findings("REW006") == []
    assert plain(noisy(1.4, 0.1, 1)).findings("REW006") == []


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


@pytest.mark.parametrize(
    ("evaluations", "is_found"),
    [
        ((0.215, 0.085, 0.065, 0.035), True),  # at least 200 responses
        ((0.2, 0.1, 0.067, 0.033), False),  # 6, 3, 2 and 1 of 30
    ],
)
def test_rounded_evaluations_imply_a_number_of_responses(
    evaluations: tuple[float, ...], is_found: bool
) -> None:
    shares = dict(zip((20, 40, 60, 80), evaluations, strict=True))
    curves: dict[str, Curve] = {
        REWARD: noisy(ramp(0.26, 0.99, 25), 0.02, 1),
        "reward/heldout": shares.get,
    }
    assert bool(Patient(steps(90, curves)).findings("REW003")) is is_found


def test_a_median_at_the_ceiling_with_a_lower_mean_is_no_solution() -> None:
    """A public run: 1 in most batches of four responses, .87 on average."""
    rewards = [(1.0, 1.0, 0.5, 1.0, 1.0, 0.75, 1.0)[step % 7] for step in range(120)]
    assert plain(rewards, count=120).findings("REW006") == []
    solved = is_solved(plain(rewards, count=120).engine.chart)
    accurate = is_solved(Patient(steps(120, {ACCURACY: rewards})).engine.chart)
    assert (solved, accurate) == (False, False)
    outage = [0.0 if step == 116 else 0.99 for step in range(120)]
    assert is_solved(Patient(steps(120, {ACCURACY: outage})).engine.chart)


def test_saturated_groups_are_left_to_their_rule() -> None:
    curves = {**both(ramp(0.5, 1.0, 20)), "groups/all_correct_rate": ramp(0.1, 1.0, 20)}
    patient = run(curves)
    assert patient.findings("REW006") == []
    assert patient.findings("GRP001")


def test_a_task_that_was_never_rewarded_is_a_warning() -> None:
    """A public run: the format earned now and then, the equation in none of 39 batches."""
    curves: dict[str, Curve] = {
        REWARD: lambda step: 0.125 * (step % 2),
        "reward/component/format_reward_func/mean": lambda step: 0.125 * (step % 2),
        "reward/component/equation_reward_func/mean": 0.0,
    }
    finding = Patient(steps(39, curves)).finding("REW004")
    assert finding.severity == "warning"
    assert "only the form of responses is rewarded" in finding.summary
    strict: dict[str, Curve] = {**curves, "reward/component/equation_reward_func/mean": 0.3}
    strict["reward/component/strict_format/mean"] = 0.0
    assert Patient(steps(39, strict)).finding("REW004").severity == "info"


def test_single_prompts_of_all_kinds_are_no_collapse() -> None:
    """A public run, one prompt a step, that stood at .9 for 2,400 steps."""
    for seed in (2, 10, 16):
        rng = random.Random(seed)
        kinds = [2.0, 2.0, 1.4, 1.0, 0.5, 0.5, 0.5, 0.2, -0.3]
        reward = [rng.choice(kinds) for _ in range(1000)]
        found = Patient(steps(1000, {"reward/mean": reward})).findings("REW002")
        assert [each for each in found if each.severity != "info"] == []


def components(**means: Curve) -> Patient:
    curves: dict[str, Curve] = {"reward/mean": noisy(1.4, 0.1, 8)}
    curves |= {f"reward/component/{name}/mean": curve for name, curve in means.items()}
    return Patient(steps(60, curves))


def test_a_component_that_everybody_earns_is_info() -> None:
    finding = components(task=noisy(0.4, 0.1, 1), language=1.0, tone=0.25).finding("REW007")
    assert (finding.severity, finding.active) == ("info", True)
    assert "language (1), tone (0.25)" in finding.summary
    assert "task" not in finding.summary


def test_a_format_that_single_responses_miss_is_constant() -> None:
    nearly: Curve = lambda step: 0.98 if step in (3, 31) else 1.0  # noqa: E731 - a curve
    finding = components(task=noisy(0.4, 0.1, 1), format=nearly).finding("REW007")
    assert "format (1)" in finding.summary


def test_components_that_move_or_are_alone_or_were_never_earned_are_none() -> None:
    moved = noisy(0.4, 0.1, 1)
    often: Curve = lambda step: 1.0 if step % 10 else 0.98  # noqa: E731 - a curve as any other
    assert components(task=moved, format=often).findings("REW007") == []
    assert components(task=moved, format=0.0).findings("REW007") == []
    assert components(task=1.0).findings("REW007") == []


def test_a_component_whose_mean_stands_still_while_responses_differ_does_teach() -> None:
    curves: dict[str, Curve] = {
        "reward/mean": noisy(1.4, 0.1, 8),
        "reward/component/task/mean": noisy(0.4, 0.1, 1),
        "reward/component/rank/mean": 0.5,
        "reward/component/rank/std": 0.3,
    }
    assert Patient(steps(60, curves)).findings("REW007") == []


def test_a_run_that_died_within_ten_readings_is_a_collapse_without_any_groups() -> None:
    """A public run: .9, .83, .7, and zero from the fifth reading on."""
    reward = [0.9, 0.83, 0.85, 0.7, 0.2] + [0.0, 0.05] * 20
    finding = Patient(steps(45, {"reward/mean": reward})).finding("REW002")
    assert (finding.severity, finding.active) == ("critical", True)
    assert "0.85 at the start" in finding.summary


def test_a_policy_that_degenerates_at_once_to_one_answer_has_fallen() -> None:
    """Sparse evaluations of a yes-or-no task: every response says the same from the fifth on."""
    accuracy = [0.97, 0.85, 0.8, 0.7, *[0.5] * 20]
    curves: dict[str, Curve] = {"accuracy/train": accuracy, "reward/mean": noisy(0.1, 0.3, 1)}
    finding = Patient(steps(24, curves)).finding("REW002")
    assert (finding.severity, finding.active) == ("warning", True)
    assert "at the start" in finding.summary
    assert 2 <= finding.onset_step <= 5, "the checkpoint to go back to lies before the fall"


def test_a_little_less_of_a_reward_around_zero_is_no_fall() -> None:
    reward = [0.06, 0.05, 0.055, *[0.03, 0.02, -0.01] * 10]
    assert Patient(steps(33, {"reward/mean": reward})).findings("REW002") == []


def test_a_fall_begins_where_the_outcome_fell_and_not_where_it_is_certain() -> None:
    falls = noisy(lambda step: 0.6 if step < 50 else 0.15, 0.1, 1)
    finding = Patient(steps(100, {"reward/mean": falls})).finding("REW002")
    assert 48 <= finding.onset_step <= 52


def test_the_luck_of_few_responses_makes_hardly_a_loss_critical() -> None:
    """Batches of two prompts with four responses each: what was gained is lost again."""

    def batch(level: float, rng: random.Random) -> float:
        prompts = [level + rng.gauss(0.0, 0.2) for _ in range(2)]
        return fmean(rng.random() < prompt for prompt in prompts for _ in range(4))

    severities = []
    for seed in range(30):
        rng = random.Random(seed)
        reward = [batch(level, rng) for level in [0.4] * 20 + [0.65] * 25 + [0.3] * 35]
        severities += [each.severity for each in plain(reward).findings("REW002")]
    assert severities.count("critical") <= 2, "half of it is lost, whatever the best of the medians"
    assert "warning" in severities


def test_a_lucky_start_is_no_level_to_fall_from() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        reward = [0.9, 0.8, 0.9] + [rng.choice([0.0, 0.25, 0.5, 0.75, 1.0]) for _ in range(80)]
        assert Patient(steps(83, {"reward/mean": reward})).findings("REW002") == []


def test_a_reward_that_settles_below_its_best_is_constant() -> None:
    """A public run: -2.1 to -1, and then -1 for every response, but for a batch now and then."""
    reward = [-2.1, -1.7, -1.3, -1.2, -1.1, -1.05] + [-1.0] * 40
    reward[30] = -1.03
    finding = plain(reward).finding("REW004")
    assert (finding.severity, finding.active) == ("warning", True)
    assert "-1 for 20 readings" in finding.summary
    solved = [0.5, 0.7, 0.9] + [1.0] * 60
    assert plain(solved).findings("REW004") == []
    held = [round(0.5 + 0.01 * (step // 10), 2) for step in range(120)]
    assert plain(held).findings("REW004") == []


def test_a_run_that_breaks_off_is_reported_within_ten_readings() -> None:
    """A public run: about .6, then -.02 to -.19 in its last eight steps."""
    rng = random.Random(2)
    reward = [0.6 + rng.gauss(0, 0.1) for _ in range(92)]
    reward += [-0.02, -0.16, 0.2, 0.05, -0.09, -0.17, -0.19, -0.18]
    finding = plain(reward, count=100).finding("REW002")
    assert finding.severity == "critical"
    assert finding.onset_step >= 85


def test_a_collapse_within_the_first_eight_readings_is_seen() -> None:
    reward = [0.6, 0.62, 0.58, 0.2, 0.05, 0.02, 0.0, 0.01, 0.0, 0.0, 0.0, 0.0]
    finding = plain(reward, count=12).finding("REW002")
    assert (finding.severity, finding.summary[:11]) == ("critical", "Reward fell")


@pytest.mark.slow
def test_noise_alone_is_no_sharp_fall() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        reward = [rng.choice([0.0, 0.25, 0.5, 0.75, 1.0]) for _ in range(400)]
        found = plain(reward, count=400).findings("REW002")
        assert not [each for each in found if "sharply" in each.summary]


def falling(zero_variance: Curve) -> Patient:
    """A planted run: advantages with the wrong sign, .32 to .14 in the noise of the batches."""
    reward = noisy(ramp(0.32, 0.14, 60), 0.1, 6)
    return Patient(steps(60, {REWARD: reward, "groups/zero_variance_rate": zero_variance}))


def test_a_fall_that_makes_groups_all_incorrect_needs_a_weaker_trend() -> None:
    finding = falling(noisy(ramp(0.15, 0.6, 60), 0.1, 5)).finding("REW002")
    assert finding.severity == "warning"
    assert "fell over the run" in finding.summary
    assert falling(noisy(0.2, 0.1, 5)).finding("REW002").severity == "info"


def test_a_noisy_reward_that_falls_over_the_whole_run_is_a_warning() -> None:
    """Batches of eight responses: no level of ten readings is certain."""

    def batch(step: int) -> float:
        draw = random.Random(step)
        rate = 0.3 - 0.27 * step / 80
        return sum(draw.random() < rate for _ in range(8)) / 8

    patient = Patient(steps(80, {REWARD: batch}))
    assert patient.finding("REW002").severity == "warning"
    assert "fell over the run" in patient.finding("REW002").summary


@pytest.mark.parametrize("seed", range(8))
def test_a_noisy_reward_that_stays_is_no_fall(seed: int) -> None:
    def batch(step: int) -> float:
        draw = random.Random(f"{seed}/{step}")
        return sum(draw.random() < 0.15 for _ in range(8)) / 8

    assert Patient(steps(120, {REWARD: batch})).findings("REW002") == []


def evaluated(correct: list[int], count: int = 664) -> Patient:
    """Few evaluations on the same prompts, with their exact shares."""
    curves: dict[str, Curve] = {
        REWARD: noisy(ramp(0.35, 0.42, 40), 0.05, 1),
        HELDOUT: lambda step: Mean(correct[step // 10] / count, 1) if step % 10 == 0 else None,
    }
    return Patient(steps(10 * len(correct), curves))


def test_few_evaluations_that_only_fall_are_a_warning() -> None:
    """A public run: 376, 373, 361 and 338 of 664 while the reward held."""
    finding = evaluated([376, 373, 361, 338]).finding("REW003")
    assert (finding.severity, finding.onset_step) == ("warning", 10)
    assert "4 evaluations" in finding.summary


@pytest.mark.parametrize(
    "correct", [[376, 373, 361, 360], [376, 373, 378, 338], [376, 350, 338], [40, 38, 37, 34]]
)
def test_few_evaluations_that_fall_within_their_error_are_quiet(correct: list[int]) -> None:
    assert evaluated(correct, 64 if correct[0] == 40 else 664).findings("REW003") == []


def graded(values: list[float], reward: Curve) -> Patient:
    """Few evaluations of a measure whose number of responses is unknown."""
    curves: dict[str, Curve] = {
        REWARD: reward,
        "reward/heldout": lambda step: values[step // 10] if step % 10 == 0 else None,
    }
    return Patient(steps(10 * len(values), curves))


FELL = [0.0232, 0.0222, 0.0203, 0.02026, 0.0204, 0.0202]


def test_evaluations_that_fell_once_and_stay_low_are_noted() -> None:
    """A public run was called healthy: ndcg .0232 to .0202 while the reward tripled."""
    rising = noisy(ramp(0.13, 0.4, 60), 0.03, 1)
    finding = graded(FELL, rising).finding("REW003")
    assert (finding.severity, finding.onset_step) == ("info", 20)
    assert graded([*FELL, 0.0203, 0.0204], rising).finding("REW003").severity == "warning"
    for values in (
        [0.0232, 0.0205, 0.0224, 0.0203, 0.0204, 0.0202],  # scattered
        [0.0232, 0.0222, 0.0203, 0.0229, 0.0204, 0.0202],  # came back
        FELL[:5],
        [each + 0.1 for each in FELL],  # two in a hundred
        FELL[::-1],
    ):
        assert graded(values, rising).findings("REW003") == []
    assert graded(FELL, noisy(0.3, 0.03, 1)).findings("REW003") == []


def counted(correct: list[int], count: int = 256) -> Patient:
    """Evaluations that log how many responses they judged."""
    curves: dict[str, Curve] = {
        REWARD: noisy(ramp(0.05, 0.15, 40), 0.02, 1),
        HELDOUT: lambda step: Rate(correct[step // 10], count) if step % 10 == 0 else None,
    }
    return Patient(steps(10 * len(correct), curves))


def test_a_first_evaluation_above_all_later_ones_is_a_warning() -> None:
    finding = counted([148, 88, 92, 104, 104, 88, 96]).finding("REW003")
    assert (finding.severity, finding.onset_step) == ("warning", 10)
    assert "6 evaluations since" in finding.summary
    assert counted([148, 120, 132, 136, 120, 144, 124]).findings("REW003") == []
    assert counted([148, 88, 92, 152, 104, 88, 96]).findings("REW003") == []


def test_a_lucky_first_evaluation_of_an_unchanged_policy_is_quiet() -> None:
    """A planted run with a learning rate of 0: 37 of 64, then 20 to 28."""
    assert counted([37, 22, 20, 25, 26, 28, 26], count=64).findings("REW003") == []


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


def test_a_warm_start_that_is_lost_before_the_second_reading_has_fallen() -> None:
    """Three public runs evaluated a trained model first: .99, and .6 from the second reading on."""
    reward = noisy(0.0, 0.3, 1, low=-1.0)
    for accuracy in ([0.99, 0.64, *[0.6] * 30], [0.99, 0.79, 0.61, 0.65, *[0.64] * 30]):
        curves: dict[str, Curve] = {"accuracy/train": accuracy, "reward/mean": reward}
        finding = Patient(steps(21, curves)).finding("REW002")
        assert (finding.severity, finding.active, finding.onset_step) == ("warning", True, 1)
        assert "in the first reading" in finding.summary
    long = Patient(steps(300, {"accuracy/train": [0.99, 0.64, *[0.6] * 300]})).finding("REW002")
    assert long.active, "the first reading is no longer in the window"


@pytest.mark.parametrize("seed", range(20))
def test_a_first_reading_that_is_the_highest_by_chance_is_no_fall(seed: int) -> None:
    curve = noisy(0.4, 0.12, seed)
    noise = [curve(step) for step in range(40)]
    accuracy = [0.6, *(value for value in noise if isinstance(value, float))]
    assert Patient(steps(40, {"accuracy/train": accuracy})).findings("REW002") == []
    shaped = [0.6, *[0.45] * 40]  # a quarter of it is lost
    assert Patient(steps(40, {"accuracy/train": shaped})).findings("REW002") == []


def episodes(rate: Curve, seed: int, *, failed: float = 0.0, solved: float = 1.0) -> list[float]:
    """The outcomes of one episode per row, of which a share is solved."""
    rng = random.Random(seed)
    shares = [rate(step) if callable(rate) else rate for step in range(500)]
    return [solved if rng.random() < float(share) else failed for share in shares]  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", sampled(range(8), 3))
@pytest.mark.parametrize("rate", [0.35, 0.5])
def test_a_log_of_single_episodes_is_no_collapse_and_no_constant(rate: float, seed: int) -> None:
    """A public log has -1 for each failed episode and about 147 for a solved one."""
    reward = episodes(rate, seed, failed=-1.0, solved=147.0)
    curves: dict[str, Curve] = {REWARD: reward, ACCURACY: [float(each > 0) for each in reward]}
    run = Patient(steps(500, curves))
    for code in ("REW002", "REW004", "GRP002"):
        active = [each for each in run.findings(code) if each.active and each.severity != "info"]
        assert active == [], code


@pytest.mark.parametrize("seed", range(4))
def test_single_episodes_that_cease_to_succeed_are_reported(seed: int) -> None:
    fallen = episodes(lambda step: 0.8 if step < 250 else 0.0, seed)
    run = Patient(steps(500, both(fallen)))
    findings = run.engine.diagnosis().findings
    assert {each.code for each in findings if each.active} & {"REW002", "GRP002"}


def test_a_mean_of_batches_that_settles_after_some_at_that_level_is_constant() -> None:
    """Half of the earlier batches at the level do not make twenty in a row chance."""
    early = [(-1.0, 0.2 + step / 500)[step % 2] for step in range(60)]
    finding = Patient(steps(110, {REWARD: [*early, *[-1.0] * 50]})).finding("REW004")
    assert (finding.severity, finding.active) == ("warning", True)

from __future__ import annotations

import random
from functools import partial
from statistics import fmean

import pytest

from grpodoctor.rules.reward.reward_collapse import RewardCollapse
from grpodoctor.rules.shared.health.run_health import share_lost
from grpodoctor.runs.series import Series
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
from tests.samples import sampled

ACCURACY, REWARD, HELDOUT = "accuracy/train", "reward/mean", "accuracy/heldout"

run = partial(altered, count=120)


def test_a_collapse_within_twenty_steps_is_found_and_critical() -> None:
    """Accuracy .45 to .12 in twenty steps, as under a quantised sampler's log-probabilities."""
    finding = run(successful(noisy(ramp(0.45, 0.12, 20), 0.05, 7)), count=50).finding("REW002")
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
    curves = {**successful(noisy(curriculum, 0.02, 1)), HELDOUT: heldout}
    patient = run(curves, count=count)
    findings = patient.findings("REW002")
    assert (findings[-1].severity, findings[-1].remedies) == ("info", ("recheck-reward",))
    assert "held-out accuracy rose" in findings[-1].summary
    assert patient.alarms() == []


@pytest.mark.parametrize("heldout", [ramp(0.5, 0.2, 100), 0.4, noisy(0.4, 0.02, 3)])
def test_a_fall_without_a_rise_elsewhere_is_an_alarm(heldout: Curve) -> None:
    curves = {**successful(noisy(curriculum, 0.02, 1)), HELDOUT: every(10, heldout)}
    assert run(curves, count=75).finding("REW002").severity != "info"


def test_evaluations_before_the_fall_excuse_nothing() -> None:
    curves = {
        **successful(noisy(curriculum, 0.02, 1)),
        HELDOUT: lambda step: 0.2 + step / 200 if step % 10 == 0 and step < 50 else None,
    }
    assert run(curves, count=75).finding("REW002").severity != "info"


def test_a_fall_is_over_when_the_level_is_near_the_best_again() -> None:
    """Without evaluations, the second finding of a curriculum would wait twice as long."""
    patient = run(successful(noisy(curriculum, 0.02, 1)), count=149, without=(HELDOUT,))
    first, second = patient.findings("REW002")
    assert (first.active, second.active) == (False, False)
    assert second.last_step < 145


def test_noise_slow_wear_and_rare_success_are_no_collapse() -> None:
    assert run(successful(noisy(ramp(0.55, 0.45, 100), 0.065, 9))).findings("REW002") == []
    rare = lambda step: 1 / 128 if step % 3 == 0 and step < 60 else 0.0  # noqa: E731 - a curve
    assert run(successful(rare)).findings("REW002") == []
    around_zero = noisy(0.0, 0.1, 10, low=-1)
    assert run({REWARD: around_zero}, without=(ACCURACY,), count=600).findings("REW002") == []


def test_single_prompts_of_all_kinds_are_no_collapse() -> None:
    """A public run, one prompt a step, that stood at .9 for 2,400 steps."""
    for seed in (2, 10, 16):
        rng = random.Random(seed)
        kinds = [2.0, 2.0, 1.4, 1.0, 0.5, 0.5, 0.5, 0.2, -0.3]
        reward = [rng.choice(kinds) for _ in range(1000)]
        found = Patient(steps(1000, {"reward/mean": reward})).findings("REW002")
        assert [each for each in found if each.severity != "info"] == []


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
        severities += [each.severity for each in reward_only(reward).findings("REW002")]
    assert severities.count("critical") <= 2, "half of it is lost, whatever the best of the medians"
    assert "warning" in severities


def test_a_lucky_start_is_no_level_to_fall_from() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        reward = [0.9, 0.8, 0.9] + [rng.choice([0.0, 0.25, 0.5, 0.75, 1.0]) for _ in range(80)]
        assert Patient(steps(83, {"reward/mean": reward})).findings("REW002") == []


def test_a_run_that_breaks_off_is_reported_within_ten_readings() -> None:
    """A public run: about .6, then -.02 to -.19 in its last eight steps."""
    rng = random.Random(2)
    reward = [0.6 + rng.gauss(0, 0.1) for _ in range(92)]
    reward += [-0.02, -0.16, 0.2, 0.05, -0.09, -0.17, -0.19, -0.18]
    finding = reward_only(reward, count=100).finding("REW002")
    assert finding.severity == "critical"
    assert finding.onset_step >= 85


def test_a_collapse_within_the_first_eight_readings_is_seen() -> None:
    reward = [0.6, 0.62, 0.58, 0.2, 0.05, 0.02, 0.0, 0.01, 0.0, 0.0, 0.0, 0.0]
    finding = reward_only(reward, count=12).finding("REW002")
    assert (finding.severity, finding.summary[:11]) == ("critical", "Reward fell")


@pytest.mark.slow
def test_noise_alone_is_no_sharp_fall() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        reward = [rng.choice([0.0, 0.25, 0.5, 0.75, 1.0]) for _ in range(400)]
        found = reward_only(reward, count=400).findings("REW002")
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
    run = Patient(steps(500, successful(fallen)))
    findings = run.engine.diagnosis().findings
    assert {each.code for each in findings if each.active} & {"REW002", "GRP002"}


SLOW_FALL: dict[str, Curve] = {
    **successful(noisy(ramp(0.6, 0.2, 100), 0.05, 3)),
    "kl/old_policy/k3": noisy(0.001, 0.0002, 4),
    "kl/reference/k3": ramp(0.001, 0.08, 80),
    "optimizer/grad_norm": noisy(0.7, 0.05, 5),
    "entropy/mean": noisy(0.5, 0.02, 6),
}


def test_the_reward_is_tested_first_if_no_update_was_large() -> None:
    finding = run(SLOW_FALL, without=(HELDOUT,)).finding("REW002")
    assert finding.remedies[:2] == ("recheck-reward", "lower-learning-rate")
    assert {each.metric for each in finding.evidence} >= {
        "kl/old_policy/k3",
        "optimizer/grad_norm",
    }


@pytest.mark.parametrize(
    "change",
    [
        {"kl/old_policy/k3": noisy(0.008, 0.001, 4)},
        {"clip/low_rate": 0.03},
        {"kl/reference/k3": ramp(0.001, 0.5, 80)},
        {"optimizer/grad_norm": ramp(0.7, 2.5, 80)},
        {"optimizer/grad_norm": lambda step: 9.0 if step == 60 else 0.7},
        {"entropy/mean": ramp(0.5, 0.1, 80)},
        {"entropy/mean": ramp(0.5, 1.4, 80)},
    ],
)
def test_the_learning_rate_is_first_if_something_shows_large_updates(
    change: dict[str, Curve],
) -> None:
    finding = run({**SLOW_FALL, **change}, without=(HELDOUT,)).finding("REW002")
    assert finding.remedies[0] == "lower-learning-rate"


def test_a_log_without_the_size_of_updates_does_not_clear_them() -> None:
    sizes = ("kl/old_policy/k3", "kl/old_policy/k1", "clip/low_rate", "clip/high_rate")
    finding = run(SLOW_FALL, without=(*sizes, HELDOUT)).finding("REW002")
    assert finding.remedies[0] == "lower-learning-rate"


def test_the_noise_of_a_long_run_is_no_loss() -> None:
    """The more levels a run has, the further apart are its best and its worst one by chance."""
    draw, series = random.Random(1), Series()
    for step in range(5000):
        series.append(step, draw.random())
        assert step < 100 or share_lost(series) < RewardCollapse.warning_loss, step


@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_a_fall_in_a_long_run_is_a_loss(noise: float) -> None:
    draw, series = random.Random(2), Series()
    for step in range(2050):
        series.append(step, draw.gauss(0.7 if step < 2000 else 0.05, noise))
    assert share_lost(series) > 0.6

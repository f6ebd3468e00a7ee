"""OPT005, OPT006 and MOE006: steps of the wrong size, foreign gradients."""

from __future__ import annotations

import pytest

from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import NotApplicable
from tests.rules.scenario import Curve, Patient, healthy, noisy, ramp, steps

GRADIENT, RATE = "optimizer/grad_norm", "optimizer/learning_rate"
CHANGED, MOVED = "optimizer/changed_weight_rate", "optimizer/update_norm_ratio"
REFERENCE, OLD = "kl/reference/k3", "kl/old_policy/k3"
LOW, HIGH, REWARD = "clip/low_rate", "clip/high_rate", "reward/mean"
AUXILIARY = "experts/auxiliary_loss"
FLAT: Curve = noisy(0.4, 0.05, 9)
RISING: Curve = noisy(ramp(0.3, 0.7, 60), 0.04, 9)


def run(curves: dict[str, Curve], count: int = 100, first: int = 0, **knobs: Setting) -> Patient:
    return Patient(steps(count, curves, first=first), knobs=knobs)


def still(**curves: Curve) -> dict[str, Curve]:
    return {GRADIENT: noisy(0.5, 0.05, 1), REWARD: FLAT, **curves}


def test_updates_that_are_rounded_away() -> None:
    """bf16 weights at a rate of 1e-6: a healthy gradient, and hardly a weight that changes."""
    finding = run({**still(), CHANGED: noisy(0.004, 0.001, 2)}).finding("OPT005")
    assert (finding.severity, finding.remedies[0]) == ("warning", "float32-weights")
    assert run({**still(), MOVED: 3e-9}).finding("OPT005").severity == "warning"
    assert run({**still(), REFERENCE: noisy(1e-4, 1e-5, 2)}).finding("OPT005").severity == "warning"


@pytest.mark.parametrize(
    ("rate", "first"),
    [(3e-7, "raise-learning-rate"), (1e-6, "float32-weights"), (2e-5, "float32-weights")],
)
def test_a_rate_below_the_usual_one_is_raised_first(rate: float, first: str) -> None:
    """A public run: 3e-7 that decays to 3e-8, and the first advice was float32."""
    curves = {**still(), REFERENCE: noisy(1e-4, 1e-5, 2)}
    decaying = ramp(rate, rate / 10, 100)
    assert run({**curves, RATE: decaying}).finding("OPT005").remedies[0] == first
    assert run(curves, learning_rate=rate).finding("OPT005").remedies[0] == first


def test_a_level_policy_stays_a_finding_beyond_the_window() -> None:
    level: dict[str, Curve] = {
        **still(), REWARD: noisy(0.4, 0.03, 9), "entropy/mean": noisy(0.5, 0.01, 3),
        "length/mean": noisy(400, 8, 4, low=1),
    }  # fmt: skip
    patient = Patient(steps(300, level))
    found = patient.finding("OPT005")
    assert found.active
    assert found.last_step > 280


def test_small_updates_that_teach_are_no_fault() -> None:
    learning = {**still(), CHANGED: noisy(0.004, 0.001, 2), REWARD: RISING}
    assert run(learning).findings("OPT005") == []


def test_a_kl_that_grows_with_the_steps_is_young_not_small() -> None:
    """A warm-up of sixty steps: the KL grows with the square of the steps."""
    warm_up = [2e-4 * (step / 60) ** 2 for step in range(60)]
    assert run({**still(), REFERENCE: warm_up}, 60).findings("OPT005") == []
    tiny = [2e-7 * (step / 60) ** 2 for step in range(60)]
    assert run({**still(), REFERENCE: tiny}, 60).finding("OPT005").severity == "warning"


@pytest.mark.parametrize(
    "other",
    [
        {CHANGED: 1.0},
        {REFERENCE: 0.02},
        {REFERENCE: 0.0},
        {CHANGED: 0.004, GRADIENT: 0.0},
        {CHANGED: 0.004, "groups/zero_variance_rate": 0.95},
    ],
)
def test_other_reasons_for_a_flat_reward(other: dict[str, Curve]) -> None:
    assert run({**still(), **other}).findings("OPT005") == []


def test_a_varying_reward_shows_a_gradient_that_is_not_logged() -> None:
    """A public run: the KL estimate stays around zero for 9,751 steps, and so does the reward."""
    curves: dict[str, Curve] = {"kl/reference/k1": noisy(0, 0.001, 3, low=-1), REWARD: FLAT}
    assert run(curves, 200).finding("OPT005").severity == "warning"
    assert run({**curves, REWARD: 0.4}, 200).findings("OPT005") == []
    assert run({**curves, REWARD: RISING}, 200).findings("OPT005") == []


def hasty(reward: Curve) -> dict[str, Curve]:
    return {
        OLD: noisy(ramp(0.001, 0.03, 10, begin=30), 0.0005, 1),
        LOW: noisy(ramp(0.003, 0.03, 10, begin=30), 0.0005, 2),
        HIGH: noisy(ramp(0.001, 0.01, 10, begin=30), 0.0003, 3),
        RATE: ramp(1e-6, 1e-5, 40),
        REWARD: reward,
    }


def test_kl_and_clips_that_jump_together() -> None:
    falling = noisy(ramp(0.5, 0.2, 20, begin=35), 0.03, 4)
    finding = run(hasty(falling)).finding("OPT006")
    assert (finding.severity, finding.remedies[0]) == ("warning", "lower-learning-rate")
    assert 30 <= finding.onset_step <= 45
    assert "learning rate of 1e-05" in finding.summary


@pytest.mark.parametrize("name", [OLD, LOW])
def test_one_of_them_alone_is_noise(name: str) -> None:
    curves = {**hasty(FLAT), name: noisy(0.001, 0.0002, 5), HIGH: 0.0}
    assert run(curves).findings("OPT006") == []


def test_a_rate_that_is_multiplied_before_the_outcome_falls_is_the_cause() -> None:
    falling = noisy(lambda step: 0.6 if step < 32 else 0.1, 0.03, 4)
    curves: dict[str, Curve] = {RATE: lambda step: 1e-6 if step < 30 else 4e-5, REWARD: falling}
    finding = run(curves).finding("OPT006")
    assert (finding.severity, finding.onset_step) == ("warning", 30)
    assert "from 1e-06 to 4e-05 at step 30" in finding.summary


@pytest.mark.parametrize(
    ("rate", "reward"),
    [
        (ramp(0, 1e-5, 40), noisy(ramp(0.5, 0.2, 20, begin=35), 0.03, 4)),  # a warm-up
        (lambda step: 1e-6 if step < 30 else 4e-5, RISING),
        (lambda step: 1e-6 if step < 45 else 4e-5, lambda step: 0.6 if step < 30 else 0.1),
        (lambda step: 4e-5 if step == 30 else 1e-6, lambda step: 0.6 if step < 40 else 0.1),
    ],
)
def test_a_warm_up_and_a_rate_that_did_no_harm_are_quiet(rate: Curve, reward: Curve) -> None:
    assert run({RATE: rate, REWARD: reward}).findings("OPT006") == []


def test_an_accuracy_that_is_logged_no_more_gives_way_to_the_reward() -> None:
    """ROLL logs no accuracy in steps without a correct response."""
    reward = noisy(lambda step: 0.3 if step < 40 else 0.0, 0.02, 1, low=0.0)
    curves: dict[str, Curve] = {
        RATE: lambda step: 1e-6 if step < 40 else 6e-5,
        REWARD: lambda step: reward(step) if step < 40 else 0.0,
        "accuracy/train": lambda step: reward(step) if step < 40 else None,
    }
    assert run(curves).finding("OPT006").onset_step == 40
    rare = {**curves, "accuracy/train": lambda step: 0.3 if step % 20 == 0 else None}
    assert run(rare).findings("OPT006") == []  # it is logged as often as before, and holds


def test_large_steps_that_teach_are_quiet() -> None:
    assert run(hasty(noisy(ramp(0.3, 0.8, 60), 0.03, 4))).findings("OPT006") == []


def test_ratios_that_are_off_before_the_update_have_another_cause() -> None:
    off = {**hasty(FLAT), "mismatch/first_ratio_off": 0.4}
    assert run(off).findings("OPT006") == []


def test_a_router_loss_is_info_until_nothing_rises() -> None:
    auxiliary: Curve = noisy(0.02, 0.001, 1)
    finding = run({AUXILIARY: auxiliary, REWARD: FLAT}).finding("MOE006")
    assert (finding.severity, finding.remedies) == ("warning", ("router-loss-off",))
    assert run({AUXILIARY: auxiliary, REWARD: RISING}).finding("MOE006").severity == "info"
    assert run({AUXILIARY: 0.0, REWARD: FLAT}).findings("MOE006") == []


CODES = ("OPT005", "OPT006", "MOE006")


@pytest.mark.parametrize("seed", range(4))
def test_healthy_runs_are_quiet(seed: int) -> None:
    patient = Patient(steps(150, healthy(seed)))
    assert [each for code in CODES for each in patient.findings(code)] == []


def test_skipped_and_not_applicable() -> None:
    skipped = {each.code for each in run({REWARD: FLAT}).engine.diagnosis().skipped}
    assert set(CODES) <= skipped
    patient = run({REFERENCE: NotApplicable("no reference"), GRADIENT: 1.0})
    assert patient.why_not("OPT005") == "no reference"


def unchanged(**curves: Curve) -> dict[str, Curve]:
    """A policy that stays as it is, in a log without any measure of its weights."""
    entropy, length = noisy(0.5, 0.03, 4), noisy(9.0, 0.5, 5)
    return {**still(), "entropy/mean": entropy, "length/mean": length, **curves}


def test_responses_that_never_change() -> None:
    finding = run(unchanged(), 60).finding("OPT005")
    assert finding.severity == "warning"
    assert "Entropy and length are level" in finding.summary


@pytest.mark.parametrize(
    "other",
    [
        {"entropy/mean": noisy(ramp(0.5, 0.35, 60), 0.03, 4)},
        {"length/mean": noisy(ramp(9.0, 12.0, 60), 0.5, 5)},
        {REWARD: noisy(ramp(0.3, 0.5, 60), 0.05, 6)},
        {"entropy/mean": noisy(0.5, 0.3, 4)},
        {REWARD: noisy(0.95, 0.01, 4)},
    ],
)
def test_responses_that_change_or_cannot_show_it(other: dict[str, Curve]) -> None:
    assert run(unchanged(**other), 60).findings("OPT005") == []


def test_level_responses_alone_have_two_causes_and_an_experiment() -> None:
    """Scores in a wrong order and an optimizer that updates a copy give the same log."""
    finding = run(unchanged(**{RATE: 3e-4}), 60).finding("OPT005")
    assert finding.summary.endswith("updates are lost, or rewards are uninformative.")
    assert finding.remedies == ("compare-weights", "recheck-reward")
    rounded = run(unchanged(**{RATE: 2e-6}), 60).finding("OPT005")
    assert rounded.remedies[:3] == ("compare-weights", "recheck-reward", "float32-weights")
    low = run(unchanged(**{RATE: 3e-7}), 60).finding("OPT005")
    assert low.summary.endswith("without a rise in reward.")
    assert low.remedies[0] == "raise-learning-rate"


@pytest.mark.parametrize("late", [0.58, 0.42])
def test_a_gradient_of_another_size_shows_other_weights(late: float) -> None:
    """Rewards without signal: the policy moves, and reward, entropy and length stay level."""
    gradient = noisy(ramp(0.5, late, 60), 0.05, 1)
    assert run(unchanged(**{GRADIENT: gradient}), 60).findings("OPT005") == []


def test_updates_of_an_ordinary_size_are_not_too_small() -> None:
    """Flat for another reason: every weight changes, by as much as in runs that learn."""
    assert run(unchanged(**{CHANGED: 1.0, MOVED: 6e-4}), 60).findings("OPT005") == []


def test_float32_weights_that_hardly_move_need_a_higher_rate() -> None:
    finding = run(unchanged(**{CHANGED: 1.0, MOVED: 1e-6}), 60).finding("OPT005")
    assert finding.remedies == ("raise-learning-rate",)


def test_a_plateau_after_progress_is_no_unchanged_policy() -> None:
    entropy = noisy(ramp(0.5, 0.2, 80), 0.01, 4)
    late = unchanged(**{"entropy/mean": entropy, REWARD: noisy(ramp(0.2, 0.6, 80), 0.03, 6)})
    assert run(late, 400).findings("OPT005") == []


def test_a_rate_that_no_recipe_uses_in_a_run_without_a_rise() -> None:
    """A log with one update per batch: neither a KL divergence nor a clip fraction shows it."""
    finding = run({RATE: 5e-3, REWARD: noisy(0.1, 0.02, 1)}, 40).finding("OPT006")
    assert (finding.severity, finding.remedies[0]) == ("warning", "lower-learning-rate")
    assert run({RATE: 5e-3, REWARD: RISING}, 60).findings("OPT006") == []
    assert run({RATE: 5e-4, REWARD: noisy(0.1, 0.02, 1)}, 40).findings("OPT006") == []
    assert run({RATE: 5e-3, REWARD: noisy(0.8, 0.05, 1)}, 40).findings("OPT006") == []
    assert run({RATE: 5e-3, REWARD: noisy(8, 0.5, 1)}, 80).finding("OPT006")  # of another scale


def test_a_rate_that_no_recipe_uses_did_no_harm_in_twenty_noisy_readings() -> None:
    """An adapter at .003, whose rise shows after thirty readings of 64 responses."""
    slow = noisy(ramp(0.42, 0.68, 40), 0.09, 3)
    for readings in (22, 30, 40):
        assert run({RATE: 3e-3, REWARD: slow}, readings).findings("OPT006") == []
    ruined = noisy(0.15, 0.05, 3)
    assert run({RATE: 3e-3, REWARD: ruined}, 30).finding("OPT006").severity == "warning"
    flat = noisy(0.4, 0.05, 3)
    assert run({RATE: 3e-3, REWARD: flat}, 80).finding("OPT006").severity == "warning"


def test_large_steps_of_a_run_that_stalled() -> None:
    """A learning rate ten times too high: no jump, and no rise in a hundred steps."""
    slow = {OLD: noisy(0.009, 0.002, 1), LOW: noisy(0.008, 0.001, 2), HIGH: 0.003}
    assert run({**slow, REWARD: FLAT}, 120).finding("OPT006").severity == "warning"
    careful = {**slow, OLD: noisy(0.001, 0.0002, 1)}
    assert run({**careful, REWARD: FLAT}, 120).findings("OPT006") == []

"""Faults that several rules saw, or none, before the one that causes them did."""

from __future__ import annotations

import math
import random

import pytest

from grpodoctor.vocabulary.knobs import Setting
from tests.rules.scenario import Curve, Patient, every, noisy, ramp, steps

REWARD, LENGTH, CUT = "reward/mean", "length/mean", "length/truncated_rate"
K1, K2, LOGPROBS = "mismatch/kl_k1", "mismatch/kl_k2", "mismatch/logprob_diff_mean"
KL, CLIPPED, RATE = "kl/reference/k3", "clip/any_rate", "optimizer/learning_rate"
RIGHT, WRONG = "groups/all_correct_rate", "groups/all_incorrect_rate"
STEADY: Curve = noisy(0.5, 0.03, 9)


def run(curves: dict[str, Curve], count: int = 100, **knobs: Setting) -> Patient:
    return Patient(steps(count, curves, first=1), knobs=knobs)


def growing(first: float, last: float, begin: int, end: int) -> Curve:
    """From one level to another by the same factor at each step."""
    rate = math.log(last / first) / (end - begin)
    return lambda step: first * math.exp(rate * min(max(step - begin, 0), end - begin))


@pytest.mark.parametrize("name", [K1, K2])
def test_a_kl_between_the_engines_that_grows_is_a_growing_mismatch(name: str) -> None:
    curves = {name: noisy(growing(3e-5, 0.012, 40, 90), 1e-5, 1, low=-1), REWARD: STEADY}
    assert run(curves).finding("MIS004").severity == "warning"
    assert run({**curves, name: noisy(3e-5, 1e-5, 1, low=-1)}).findings("MIS004") == []


def test_one_signed_reading_near_zero_is_no_rounding() -> None:
    def gap(step: int) -> float:
        return 1e-5 if step == 1 else 0.008

    assert run({K2: gap, REWARD: STEADY}).finding("SYN008").onset_step == 2
    assert run({K1: gap, REWARD: STEADY}).findings("SYN008") == []


FALLING: Curve = noisy(lambda step: 0.6 if step < 66 else 0.6 - 0.012 * (step - 66), 0.02, 4)


def test_a_kl_that_grows_exponentially_until_the_reward_falls_is_pushed() -> None:
    finding = run({KL: growing(5e-4, 8.0, 0, 100), REWARD: FALLING}).finding("KLD004")
    assert (finding.severity, finding.remedies[0]) == ("warning", "check-kl-sign")
    assert "doubles every 7.2 steps" in finding.summary
    assert finding.onset_step < 66


@pytest.mark.parametrize(
    "kl",
    [
        lambda step: 8.0 * (step / 100) ** 2,  # a drift
        lambda step: 8.0 * (step / 100) ** 3,  # a drift during a warm-up
        lambda step: 5e-4 if step < 60 else 3.0,  # a jump
        growing(1e-5, 0.1, 0, 100),  # no distance yet
    ],
)
def test_other_courses_of_the_kl_are_no_push(kl: Curve) -> None:
    assert run({KL: kl, REWARD: FALLING}).findings("KLD004") == []
    exponential = growing(5e-4, 8.0, 0, 100)
    assert run({KL: exponential, REWARD: STEADY}).findings("KLD004") == []
    assert run({KL: exponential, REWARD: FALLING}, kl_coefficient=0.0).findings("KLD004") == []


def burst(first: int, last: int, share: float = 0.4) -> Curve:
    usual = noisy(0.002, 0.0005, 3)
    return lambda step: share if first <= step <= last else usual(step)  # type: ignore[operator]


def fallen(at: int, after: float = 0.02) -> Curve:
    return noisy(lambda step: 0.7 if step < at else after, 0.01, 4)


def test_a_burst_of_clipped_tokens_before_a_sudden_fall_is_the_cause() -> None:
    finding = run({CLIPPED: burst(50, 52), REWARD: fallen(51), RATE: 1e-6}).finding("OPT006")
    assert (finding.severity, finding.onset_step) == ("warning", 50)
    assert "at steps 50 to 52 clipped up to 40% of tokens" in finding.summary
    assert "fell from 0.699" in finding.summary
    assert finding.evidence[0].value == pytest.approx(0.4, abs=0.001)


def test_a_run_that_its_first_updates_ruin() -> None:
    curves: dict[str, Curve] = {CLIPPED: burst(1, 1, 0.16), REWARD: fallen(2, 0.0), RATE: 1e-6}
    finding = run(curves).finding("OPT006")
    assert finding.onset_step == 1


@pytest.mark.parametrize(
    "curves",
    [
        {CLIPPED: burst(50, 52), REWARD: STEADY},  # harmless
        {CLIPPED: burst(50, 52), REWARD: fallen(70)},  # the fall came later
        {CLIPPED: burst(50, 52), REWARD: fallen(40)},  # or earlier
        {CLIPPED: burst(50, 50), REWARD: noisy(ramp(0.7, 0.5, 20, begin=50), 0.01, 4)},
        {CLIPPED: noisy(0.3, 0.01, 3), REWARD: fallen(50)},  # MIS002 and CLP001 judge it
    ],
)
def test_other_bursts_and_falls_are_unrelated(curves: dict[str, Curve]) -> None:
    assert run({**curves, RATE: 1e-6}).findings("OPT006") == []


def test_groups_that_agree_with_themselves_without_a_count_of_equal_groups() -> None:
    alike: dict[str, Curve] = {
        RIGHT: noisy(0.34, 0.05, 1), WRONG: lambda step: 0.98 - _right(step), REWARD: STEADY,
    }  # fmt: skip
    finding = run(alike).finding("GRP004")
    assert "responses to one prompt are alike" in finding.summary
    assert run(alike).finding("GRP002").severity == "info"
    mixed = {RIGHT: noisy(0.34, 0.05, 1), WRONG: noisy(0.4, 0.05, 2), REWARD: STEADY}
    assert run(mixed).findings("GRP004") == []


@pytest.mark.parametrize(("equal", "is_alike"), [(1.0, True), (0.97, False)])
def test_a_rare_success_of_whole_groups_alone_shows_that_responses_do_not_count(
    equal: float, is_alike: bool
) -> None:
    """Batches of eight groups, of which none to two earn 1; their spreads differ as well."""
    curves: dict[str, Curve] = {
        "groups/zero_variance_rate": equal,
        REWARD: _share,
        "reward/std": lambda step: (_share(step) * (1 - _share(step))) ** 0.5,
    }
    alarms = run(curves, without=(RIGHT, WRONG, "accuracy/train"))
    found = [each for each in alarms.findings("GRP004") if "alike" in each.summary]
    assert [each.active for each in found] == [True] * is_alike


def _share(step: int) -> float:
    return (step * 7 % 3) / 8


def _right(step: int) -> float:
    point = noisy(0.34, 0.05, 1)(step)
    assert isinstance(point, float)
    return point


def test_a_limit_that_was_lowered_during_the_run() -> None:
    longest: Curve = noisy(1700, 150, 1)
    curves: dict[str, Curve] = {
        "length/max": lambda step: longest(step) if step < 60 else 460.0,  # type: ignore[operator]
        LENGTH: noisy(lambda step: 650.0 if step < 60 else 440.0, 8, 2),
        REWARD: fallen(60, 0.2),
    }
    finding = run(curves, count=110).finding("LEN003")
    assert "460 tokens (the usual longest response)" in finding.summary
    assert finding.severity == "warning"


def test_a_mean_at_the_limit_from_the_start_may_lack_an_end_token() -> None:
    curves: dict[str, Curve] = {LENGTH: noisy(509, 1, 1), REWARD: noisy(0.003, 0.001, 2)}
    finding = run(curves, max_length=512).finding("LEN003")
    assert "hardly any response ends" in finding.summary
    assert finding.remedies[0] == "check-end-token"
    shorter = run({**curves, LENGTH: noisy(480, 5, 1)}, max_length=512).finding("LEN003")
    assert shorter.remedies[0] == "longer-limit"


def test_routes_that_are_lost_at_a_jump_explain_it() -> None:
    jump: dict[str, Curve] = {
        LOGPROBS: noisy(lambda step: 0.012 if step < 50 else 0.06, 0.001, 1), REWARD: STEADY,
    }  # fmt: skip
    assert run(jump).finding("SYN003").severity == "critical"
    lost: Curve = lambda step: 0.0 if step < 50 else 0.9  # noqa: E731 - a curve like the others
    with_routes = run({**jump, "experts/replay_fallback_rate": lost})
    assert with_routes.findings("SYN003") == []
    assert with_routes.finding("MOE005").severity == "warning"


def test_a_correction_excuses_a_mismatch_as_long_as_the_reward_holds() -> None:
    mismatch: dict[str, Curve] = {LOGPROBS: noisy(0.06, 0.002, 1)}
    kept = run({**mismatch, REWARD: STEADY}, correction="tis_token").findings("MIS001")
    assert [each.severity for each in kept] == ["info"]
    falling = noisy(ramp(0.5, 0.02, 40, begin=20), 0.02, 2)
    lost = run({**mismatch, REWARD: falling}, correction="tis_token").findings("MIS001")
    assert lost[-1].severity == "warning"
    assert "yet reward fell" in lost[-1].summary


def test_a_mismatch_between_ordinary_and_harmful_is_worth_a_note() -> None:
    note = run({LOGPROBS: noisy(0.032, 0.002, 1), REWARD: STEADY}).finding("MIS001")
    assert (note.severity, note.active) == ("info", True)
    over = noisy(lambda step: 0.06 if step < 50 else 0.032, 0.002, 1)
    ended = run({LOGPROBS: over, REWARD: STEADY}, count=140).findings("MIS001")
    assert [(each.severity, each.active) for each in ended] == [("warning", False)]


def test_a_full_training_reward_beside_a_held_out_reward_that_fell() -> None:
    learned = noisy(ramp(0.5, 0.96, 60), 0.008, 1)
    curves: dict[str, Curve] = {
        REWARD: learned,
        "groups/zero_variance_rate": noisy(ramp(0.3, 0.92, 60), 0.02, 2),
        "reward/heldout": every(20, ramp(0.55, 0.28, 120)),
    }
    assert run(curves, count=125).finding("REW008").severity == "warning"
    other_scale: dict[str, Curve] = {**curves, "reward/heldout": every(20, ramp(0.2, 0.1, 120))}
    assert run(other_scale, count=125).findings("REW008") == []


def test_learning_rates_that_add_up_to_nothing() -> None:
    flat: dict[str, Curve] = {REWARD: noisy(0.44, 0.02, 1), LENGTH: noisy(3600, 60, 2)}
    finding = run({**flat, RATE: 9e-9}, count=150).finding("OPT005")
    assert finding.remedies[0] == "raise-learning-rate"
    assert "9.0e-09" in finding.summary
    assert run({**flat, RATE: 1e-6}, count=150).findings("OPT005") == []
    assert run({**flat, RATE: 0.0}, count=150).findings("OPT005") == []


def test_many_outages_need_less_distance_and_may_score_a_few_responses() -> None:
    usual = noisy(0.5, 0.095, 1, low=0.2)

    def outages(share: int) -> Curve:
        def curve(step: int) -> float:
            point = usual(step)
            assert isinstance(point, float)
            if step < 20 or step % share:
                return point
            return 0.0078 if step % (2 * share) else 0.0

        return curve

    finding = run({REWARD: outages(9)}, count=120).finding("REW019")
    assert finding.severity == "warning"
    assert run({REWARD: outages(40)}, count=120).findings("REW019") == []


def test_single_episodes_that_fail_are_no_outages() -> None:
    """One episode per row: a success is 1, and chance spreads the failures."""
    chance = random.Random(3)
    episodes = [float(chance.random() < 0.55) for _ in range(101)]
    assert run({"accuracy/train": lambda step: episodes[step]}).findings("REW019") == []
    together = [0.0 if step % 34 > 27 else 1.0 for step in range(101)]
    finding = run({"accuracy/train": lambda step: together[step]}).finding("REW019")
    assert finding.severity == "warning"

"""Rewards that miss responses, that ignore the prompt, and samples that are nearly random."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from grpodoctor.rules.reward.rewards_ignore_prompts import zero_variance_share
from grpodoctor.rules.shared.groups.exact_shares import BatchShape, covered, denominator
from grpodoctor.rules.shared.shapes.outages import outages_beside_trend
from grpodoctor.vocabulary.knobs import Setting
from tests.rules.scenario import Curve, Patient, every, noisy, ramp, steps

REWARD, FLAT, ENTROPY = "reward/mean", "groups/zero_variance_rate", "entropy/mean"
SHAPE: dict[str, Setting] = {"group_size": 8, "prompts_per_batch": 8}


def shares(pass_rate: Callable[[int], float], spread: float, seed: int) -> dict[str, Curve]:
    """Rewards of 0 and 1 of eight prompts with eight responses, whose pass rates differ."""

    def batch(step: int) -> list[int]:
        draw = random.Random(f"{seed}/{step}")
        rates = [min(max(draw.gauss(pass_rate(step), spread), 0), 1) for _ in range(8)]
        return [sum(draw.random() < rate for _ in range(8)) for rate in rates]

    def flat(step: int) -> float:
        return sum(each in (0, 8) for each in batch(step)) / 8

    return {REWARD: lambda step: sum(batch(step)) / 64, FLAT: flat}


def patient(
    curves: dict[str, Curve], count: int = 80, knobs: dict[str, Setting] | None = None
) -> Patient:
    return Patient(steps(count, curves), knobs=knobs)


def skipped(run: Patient) -> set[str]:
    return {each.code for each in run.engine.diagnosis().skipped}


def unscored(begin: int, missing: int) -> dict[str, Curve]:
    """From a step on, some responses are left out of the mean."""
    curves = shares(lambda step: 0.4 + step / 200, 0.3, 1)
    whole = curves[REWARD]
    assert callable(whole)

    def mean(step: int) -> float:
        right = round(whole(step) * 64)  # type: ignore[operator]
        return min(right, 64 - missing) / (64 - missing) if step >= begin else right / 64

    return {**curves, REWARD: mean}


@pytest.mark.parametrize("knobs", [SHAPE, None])
@pytest.mark.parametrize("missing", [1, 3])
def test_means_that_cover_a_part_of_the_batch_name_the_unscored_responses(
    knobs: dict[str, Setting] | None, missing: int
) -> None:
    finding = patient(unscored(30, missing), knobs=knobs).finding("REW017")
    assert (finding.severity, finding.active) == ("warning", True)
    assert 30 <= finding.onset_step <= 35
    assert finding.summary.startswith(f"{missing} of 64 responses ha")
    assert finding.remedies == ("recheck-reward",)


def test_a_run_that_misses_responses_from_the_start_needs_its_config() -> None:
    assert patient(unscored(0, 1), knobs=SHAPE).finding("REW017").onset_step <= 5
    assert "REW017" in skipped(patient(unscored(0, 1)))


@pytest.mark.parametrize(
    "reward",
    [
        shares(lambda step: 0.4 + step / 200, 0.3, 1)[REWARD],
        noisy(0.5, 0.06, 1),
        lambda step: round(0.3 + step / 200 + 0.037 * (step % 5), 2),
        lambda step: (17 + step % 5) / 56,  # one group was left out
        lambda step: 21 / 63 if step % 4 == 0 else (30 + step % 3) / 64,
    ],
)
def test_whole_batches_graded_rewards_and_whole_groups_are_quiet(reward: Curve) -> None:
    curves = {**unscored(99, 1), REWARD: reward}
    assert patient(curves, knobs=SHAPE).findings("REW017") == []


def test_aborted_rollouts_are_left_to_their_own_rule() -> None:
    curves = {**unscored(10, 1), "rollouts/aborted_rate": 0.02}
    assert patient(curves, knobs=SHAPE).findings("REW017") == []


@pytest.mark.parametrize("value", [0.5, 43 / 64, 1.0, 0.0])
def test_shares_of_whole_batches_cover_them(value: float) -> None:
    assert covered(value, BatchShape(64, 8)) is None


def test_denominators_of_odd_numbers_are_unknown() -> None:
    assert covered(20 / 63, BatchShape(64, 8)) == 63
    assert denominator(43 / 64, 64) == 64
    assert [denominator(each, 64) for each in (math.nan, -0.5, 1.5, 0.123457)] == [None] * 4


@pytest.mark.parametrize("knobs", [SHAPE, None])
@pytest.mark.parametrize("seed", range(3))
def test_rewards_that_ignore_their_prompts_look_like_coin_tosses(
    seed: int, knobs: dict[str, Setting] | None
) -> None:
    finding = patient(shares(lambda _: 0.47, 0.0, seed), count=120, knobs=knobs).finding("REW018")
    assert (finding.severity, finding.onset_step) == ("warning", 0)
    assert "groups have no variance" in finding.summary
    assert finding.remedies == ("recheck-reward",)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("spread", [0.15, 0.3])
def test_prompts_that_differ_or_a_reward_that_rises_are_quiet(spread: float, seed: int) -> None:
    assert patient(shares(lambda _: 0.5, spread, seed), knobs=SHAPE).findings("REW018") == []
    rising = shares(lambda step: 0.4 + step / 300, 0.0, seed)
    assert patient(rising, knobs=SHAPE).findings("REW018") == []


def test_a_held_out_rise_and_filtered_groups_are_quiet() -> None:
    curves = shares(lambda _: 0.47, 0.0, 1)
    rising = {**curves, "reward/heldout": every(5, noisy(ramp(0.4, 0.6, 120), 0.02, 1))}
    assert patient(rising, count=120, knobs=SHAPE).findings("REW018") == []
    assert patient({**curves, FLAT: 0.0}, count=120, knobs=SHAPE).findings("REW018") == []


def test_graded_rewards_and_few_readings_are_quiet_and_an_unknown_batch_is_skipped() -> None:
    curves = shares(lambda _: 0.47, 0.0, 1)
    assert patient(curves, count=49, knobs=SHAPE).findings("REW018") == []
    graded = patient({**curves, REWARD: noisy(0.47, 0.06, 1)}, knobs=SHAPE)
    assert graded.findings("REW018") == []
    assert "REW018" in skipped(patient({**curves, REWARD: noisy(0.47, 0.06, 1)}))


def test_the_share_of_equal_groups_is_that_of_a_beta_binomial_distribution() -> None:
    assert zero_variance_share(0.5, 8, 0.0) == pytest.approx(2 / 256)
    # Uniform pass rates have a correlation of a third: each number of successes is equally likely.
    assert zero_variance_share(0.5, 8, 1 / 3) == pytest.approx(2 / 9)


def test_nearly_random_samples_are_named_if_the_reward_does_not_rise() -> None:
    curves = {ENTROPY: noisy(2.5, 0.05, 1), REWARD: noisy(0.1, 0.03, 2)}
    finding = patient(curves).finding("ENT006")
    assert (finding.severity, finding.onset_step, finding.active) == ("warning", 0, True)
    assert finding.remedies[0] == "lower-temperature"
    assert "12 equally likely tokens" in finding.summary


@pytest.mark.parametrize(
    ("entropy", "reward"),
    [
        (noisy(1.7, 0.05, 1), noisy(0.1, 0.03, 2)),
        (noisy(2.5, 0.05, 1), noisy(ramp(0.1, 0.6, 80), 0.03, 2)),
        (ramp(2.5, 0.5, 20), noisy(0.1, 0.03, 2)),
        (ramp(0.5, 2.5, 60), noisy(0.1, 0.03, 2)),
        (noisy(9.0, 0.05, 1), noisy(0.1, 0.03, 2)),
    ],
)
def test_ordinary_entropy_progress_and_explosions_are_quiet(entropy: Curve, reward: Curve) -> None:
    assert patient({ENTROPY: entropy, REWARD: reward}).findings("ENT006") == []


def test_without_entropy_or_reward_it_is_skipped() -> None:
    assert "ENT006" in skipped(patient({REWARD: 0.1}))
    assert "ENT006" in skipped(patient({ENTROPY: 2.5}))


def outages(*begins: int, level: Curve = 0.6, noise: float = 0.05) -> dict[str, Curve]:
    """Four batches without any reward from each of these steps on."""
    dead = {step + at for step in begins for at in range(4)}
    curve = noisy(level, noise, 1)
    return {REWARD: lambda step: 0.0 if step in dead else curve(step)}


def test_batches_without_any_reward_between_good_ones_are_outages() -> None:
    finding = patient(outages(30, 50)).finding("REW019")
    assert (finding.severity, finding.onset_step, finding.active) == ("warning", 30, True)
    assert finding.remedies[0] == "drop-failed-rollouts"
    assert "8 of 80 batches (2 outages)" in finding.summary
    assert patient(outages(30)).finding("REW019").severity == "info"
    rising = outages(30, 50, level=ramp(0.3, 0.55, 80))
    assert patient(rising).finding("REW019").severity == "warning"


@pytest.mark.parametrize(
    "curves",
    [
        {REWARD: noisy(0.6, 0.05, 1)},
        outages(*range(40, 120, 4)),  # it never comes back
        outages(*range(0, 40, 4)),  # the policy learns to earn something
        outages(30, 50, noise=0.2),
        {
            REWARD: lambda step: (
                sum(random.Random(f"{step}/{at}").random() < 0.5 for at in range(4)) / 4
            )
        },
        {REWARD: 0.0},
    ],
)
def test_collapses_beginners_and_batches_of_few_responses_are_no_outages(
    curves: dict[str, Curve],
) -> None:
    assert patient(curves, count=120).findings("REW019") == []


def test_rare_successes_before_a_run_has_learned_are_no_outages() -> None:
    """A public run of four episodes per batch earned 0 or .07 at first, and .28 from step 40 on."""
    rare = successes(0.25, 4, 3)
    early = [0.28 * rare(step) for step in range(40)]
    late = [0.28 + step % 4 / 500 for step in range(80)]
    assert patient({REWARD: [*early, *late]}, count=120).findings("REW019") == []
    dead = [0.0 if step % 30 == 20 else reward for step, reward in enumerate([*late, *late])]
    assert patient({REWARD: dead}, count=120).finding("REW019").severity == "warning"


def test_penalties_of_different_sizes_are_no_outages() -> None:
    """A public run of single episodes: about 1.1 or, in every other one, -1.1 to -2."""
    good = noisy(1.1, 0.04, 1)
    graded: Curve = lambda step: good(step) if step % 3 else -1.1 - step % 5 / 5  # noqa: E731 - a curve
    assert patient({REWARD: graded}, count=120).findings("REW019") == []
    level = noisy(0.6, 0.04, 1)
    same: Curve = lambda step: -1.0 if step in (30, 47, 64) else level(step)  # noqa: E731 - a curve
    assert patient({REWARD: same}).finding("REW019").severity == "warning"


def pairs(step: int, wrong: float) -> int:
    """Right responses of one prompt with two responses; a share of the prompts is too hard."""
    draw = random.Random(f"{wrong}/{step}")
    if draw.random() < 0.2:
        return 0
    return sum(draw.random() >= wrong for _ in range(2))


@pytest.mark.parametrize("wrong", [0.04, 0.1])
def test_a_prompt_that_is_too_hard_is_no_outage_of_batches_of_one_group(wrong: float) -> None:
    """A public run of two responses per batch: most batches earn 1, some .5, a fifth nothing."""
    curves: dict[str, Curve] = {
        REWARD: lambda step: pairs(step, wrong) / 2,
        FLAT: lambda step: float(pairs(step, wrong) != 1),
    }
    assert patient(curves, count=128).findings("REW019") == []
    assert patient({REWARD: outages(30, 50)[REWARD], FLAT: 0.3}).finding("REW019")


def test_outages_end_once_equal_rewards_show_that_each_batch_is_one_group() -> None:
    """A public run: no group was equal in 16 steps with three low batches; later nearly all were.

    The prompts that earned little were too hard, which its equal groups show only afterwards.
    """
    draw = random.Random(5)
    early = {5: 0.21, 9: 0.11, 13: 0.02}
    course = [early.get(step, draw.uniform(0.75, 1.1)) for step in range(17)]
    late = [0.2 if step % 11 == 0 else 1.2 if step % 5 else 1.08 for step in range(100)]
    rewards = course + late
    equal = [0.0] * 17 + [float(value in (0.2, 1.2)) for value in late]
    curves: dict[str, Curve] = {
        REWARD: lambda step: rewards[step],
        FLAT: lambda step: equal[step],
    }
    assert patient(curves, count=17).finding("REW019").active
    assert not patient(curves, count=60).finding("REW019").active


def test_the_median_of_few_responses_does_not_hide_those_that_fail() -> None:
    """Batches of two: the usual reward is 1, and a twelfth of the responses fails."""

    def reward(step: int) -> float:
        return 0.0 if step in (31, 61, 91) else 1.0 if step % 6 else 0.5

    assert patient({REWARD: reward}, count=120).findings("REW019") == []


def test_batches_next_to_zero_are_outages_where_all_others_earn_alike() -> None:
    """A judge that was down for nine in ten responses of a batch."""
    dips = (30, 47, 64)
    level = noisy(0.6, 0.04, 1)
    curves: dict[str, Curve] = {REWARD: lambda step: 0.05 if step in dips else level(step)}
    finding = patient(curves).finding("REW019")
    assert (finding.severity, finding.onset_step) == ("warning", 30)
    assert "3 of 80 batches (3 outages)" in finding.summary
    curves = {REWARD: lambda step: 0.25 if step in dips else level(step)}
    assert patient(curves).findings("REW019") == []


def successes(share: float, responses: int, seed: int) -> Curve:
    """The share of successes in batches whose responses succeed independently."""

    def at(step: int) -> float:
        draw = random.Random(f"{seed}/{step}")
        return sum(draw.random() < share for _ in range(responses)) / responses

    return at


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("share", "responses"), [(0.004, 128), (0.008, 128), (0.01, 64)])
def test_rare_successes_are_no_outages(share: float, responses: int, seed: int) -> None:
    """At a pass rate of .4 % every other batch of 128 responses has no success."""
    for reward in (successes(share, responses, seed), lambda step: step % 2 / responses):
        assert patient({REWARD: reward}).findings("REW019") == []


@pytest.mark.parametrize("responses", [64, 128])
def test_outages_of_a_reward_that_counts_successes_are_found(responses: int) -> None:
    reward = successes(0.5, responses, 1)

    def failing(step: int) -> float:
        return 0.0 if 30 <= step < 34 or 50 <= step < 54 else reward(step)  # type: ignore[operator]  # a function

    assert patient({REWARD: failing}).finding("REW019").severity == "warning"


def rising(responses: int, dips: Sequence[int], step: int) -> float:
    """A pass rate that rises from .35 to .85 in sixty steps, and fails at some steps."""
    rate = 0.35 + 0.5 * min(step / 60, 1.0)
    return successes(rate / 30 if step in dips else rate, responses, 3)(step)  # type: ignore[operator]  # a function


def test_outages_of_a_run_that_rises_are_compared_with_the_batches_around_them() -> None:
    dips = (20, 31, 42, 53)
    finding = patient({REWARD: partial(rising, 64, dips)}, count=70).finding("REW019")
    assert (finding.severity, finding.onset_step) == ("warning", 20)
    assert "4 of 70 batches (4 outages)" in finding.summary
    assert patient({REWARD: partial(rising, 64, ())}, count=70).findings("REW019") == []
    assert patient({REWARD: partial(rising, 64, dips[:2])}, count=70).findings("REW019") == []


def test_an_infinite_reward_is_no_outage_and_hides_the_chance_of_one() -> None:
    values = [rising(64, (20, 31, 42, 53), step) for step in range(70)]
    assert outages_beside_trend(values) is not None
    assert outages_beside_trend([*values[:10], math.inf, *values[11:]]) is None


@pytest.mark.parametrize("seed", range(4))
def test_batches_of_few_prompts_have_no_outages(seed: int) -> None:
    """With two prompts, one in eight batches has two that are too hard."""

    def reward(step: int) -> float:
        draw = random.Random(f"{seed}/{step}")
        rates = [0.02 if draw.random() < 0.35 else 0.6 + step / 400 for _ in range(2)]
        return sum(draw.random() < rate for rate in rates for _ in range(16)) / 32

    assert patient({REWARD: reward}, count=120).findings("REW019") == []


def test_without_an_outcome_outages_are_skipped() -> None:
    assert "REW019" in skipped(patient({ENTROPY: 0.5}))


def reset(step: int, *, entropy: float = 0.5, reward: float = 0.4) -> dict[str, Curve]:
    """A run that learns for 40 steps, and goes on from other levels at a step."""
    before = {ENTROPY: ramp(0.5, 0.25, 40), REWARD: ramp(0.4, 0.7, 40)}
    levels = {ENTROPY: entropy, REWARD: reward}

    def course(name: str) -> Curve:
        return noisy(lambda at: before[name](at) if at < step else levels[name], 0.02, len(name))

    return {name: course(name) for name in levels}


def test_a_policy_that_is_back_at_its_start_is_named() -> None:
    finding = patient(reset(45)).finding("SYN010")
    assert (finding.severity, finding.onset_step, finding.active) == ("warning", 45, True)
    assert finding.remedies == ("check-resume",)
    assert finding.summary.startswith("At step 45 reward fell from 0.7")


@pytest.mark.parametrize(
    "curves",
    [
        reset(99),
        reset(45, reward=0.7),  # entropy alone: another temperature
        reset(45, entropy=0.25),  # reward alone: another reward
        reset(45, entropy=1.2),  # noise, and not the start
        reset(45, reward=0.1, entropy=0.02),
        {ENTROPY: ramp(0.25, 0.5, 30, begin=30), REWARD: ramp(0.7, 0.4, 30, begin=30)},
    ],
)
def test_other_jumps_and_slopes_are_quiet(curves: dict[str, Curve]) -> None:
    assert patient(curves).findings("SYN010") == []


def test_without_entropy_or_outcome_a_return_is_not_looked_for() -> None:
    assert "SYN010" in skipped(patient({REWARD: 0.4}))
    assert "SYN010" in skipped(patient({ENTROPY: 0.4}))


def test_single_successes_behind_a_collapse_are_no_ordinary_batches() -> None:
    rare = (6, 1, 1, 0, 1, 2, 0, 0, 0, 1)  # of 1024 responses
    collapsed = [*(0.27 + 0.02 * step for step in range(18)), 0.22, 0.02]
    rewards = [*collapsed, *(count / 1024 for count in rare), *([0.0] * 28)]
    assert patient({REWARD: lambda step: rewards[step]}, count=58).findings("REW019") == []


def test_a_success_rate_around_the_threshold_is_one_condition() -> None:
    scattered = noisy(lambda step: 0.0098 + 0.0008 * math.sin(step / 12), 0.003, 2)
    (finding,) = Patient(steps(120, {"reward/mean": scattered})).findings("GRP002")
    assert finding.onset_step < 5

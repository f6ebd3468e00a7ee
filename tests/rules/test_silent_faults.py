"""Faults that leave the reward rising: rules that were written for causes planted unseen."""

from __future__ import annotations

import numpy as np
import pytest

from grpodoctor.rules.base import Finding
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate
from tests.rules.scenario import Curve, Patient, healthy, noisy, ramp
from tests.rules.scenario import altered as run

REFERENCE, OLD = "kl/reference/k3", "kl/old_policy/k3"
ZERO, EQUAL = "advantage/zero_rate", "groups/zero_variance_rate"
UNTRAINED, COEFFICIENT = "optimizer/untrained_token_rate", "optimizer/entropy_coefficient"
SPREAD, LEFT_OUT = "groups/reward_std", "optimizer/left_out_rate"
UNCENTRED, WEIGHTED = "groups/uncentred_rate", "advantage/token_weight"
COPIES, CHANCE, GAP = (
    "groups/duplicate_rate",
    "groups/expected_duplicate_rate",
    "mismatch/nll_gap",
)
RATE, GRADIENT = "optimizer/learning_rate", "optimizer/grad_norm"
GROUP: dict[str, Setting] = {"advantage": "group", "group_size": 8}


def test_a_reference_that_follows_the_policy_has_the_kl_of_one_batch() -> None:
    update = noisy(0.0004, 0.0002, 1, low=1e-5)
    finding = run({OLD: update, REFERENCE: update}).finding("KLD005")
    assert (finding.severity, finding.onset_step) == ("warning", 0)
    assert finding.remedies == ("check-reference",)


def test_a_fixed_reference_or_a_policy_at_rest_is_quiet() -> None:
    update = noisy(0.0004, 0.0002, 1, low=1e-5)
    assert run({OLD: update, REFERENCE: ramp(0.0004, 0.08, 60)}).findings("KLD005") == []
    assert run({OLD: 0.0, REFERENCE: 0.0}).findings("KLD005") == []
    assert run({OLD: update, REFERENCE: update}, count=30).findings("KLD005") == []


def test_without_a_reference_it_is_skipped() -> None:
    names = tuple(f"kl/reference/{each}" for each in ("k1", "k2", "k3"))
    assert "KLD005" in skipped(run({}, without=names))


def test_equal_rewards_with_advantages_mix_the_groups() -> None:
    finding = run({EQUAL: 0.125, ZERO: 0.0}, knobs=GROUP).finding("GRP008")
    assert finding.severity == "critical"
    assert "20 of 20 batches" in finding.summary


@pytest.mark.parametrize(
    "curves",
    [
        {EQUAL: 0.125, ZERO: noisy(0.12, 0.01, 1, low=0.05)},
        {EQUAL: 0.0, ZERO: 0.0},
        {EQUAL: 0.125, ZERO: 0.0, LEFT_OUT: 0.125},
        {EQUAL: lambda step: step % 2 / 8, ZERO: 0.0, LEFT_OUT: lambda step: step % 2 / 8},
        {EQUAL: 0.125, ZERO: 0.0, "reward/kl_penalty": 0.01},
    ],
)
def test_zero_advantages_filtered_groups_and_a_kl_in_the_reward_are_quiet(
    curves: dict[str, Curve],
) -> None:
    assert run(curves, knobs=GROUP).findings("GRP008") == []


def test_rounded_means_and_other_estimators_are_not_judged() -> None:
    curves: dict[str, Curve] = {EQUAL: 0.125, ZERO: 0.0}
    assert "GRP008" in skipped(run(curves, knobs=GROUP, framework="prime-rl"))
    assert "GRP008" in skipped(run(curves, knobs={"advantage": "batch_std"}))


def test_generated_tokens_outside_the_loss_are_named() -> None:
    finding = run({UNTRAINED: 1 / 12}).finding("DAT005")
    assert (finding.severity, finding.remedies) == ("warning", ("check-loss-mask",))


def test_a_complete_mask_is_quiet_and_an_unknown_one_is_skipped() -> None:
    assert run({UNTRAINED: 0.0}).findings("DAT005") == []
    assert run({UNTRAINED: NotApplicable("no response is in the loss")}).findings("DAT005") == []
    assert "DAT005" in skipped(run({}))


def test_an_advantage_at_the_last_token_alone_leaves_out_the_others() -> None:
    sparse: dict[str, Curve] = {UNTRAINED: 0.0, EQUAL: 0.125, ZERO: noisy(0.93, 0.01, 1)}
    finding = run(sparse, knobs=GROUP).finding("DAT005")
    assert finding.summary.startswith("93% of the tokens have no advantage")
    longer = sparse | {EQUAL: 0.375, ZERO: noisy(0.6, 0.01, 1)}
    assert run(longer, knobs=GROUP).findings("DAT005") == []
    assert run(sparse | {LEFT_OUT: 0.9}, knobs=GROUP).findings("DAT005") == []
    assert run(sparse, knobs={"advantage": "gae"}).findings("DAT005") == []


def test_a_negative_coefficient_in_force_is_named() -> None:
    finding = run({COEFFICIENT: lambda step: 0.01 if step < 30 else -0.01}).finding("ENT005")
    assert (finding.severity, finding.onset_step) == ("warning", 30)


def test_a_bonus_is_quiet_and_without_one_the_rule_is_skipped() -> None:
    assert run({COEFFICIENT: 0.01}).findings("ENT005") == []
    assert run({COEFFICIENT: 0.0}).findings("ENT005") == []
    assert "ENT005" in skipped(run({}))


def test_rewards_that_differ_by_jitter_alone_get_a_note() -> None:
    assert run({SPREAD: noisy(3e-5, 3e-6, 1)}).finding("GRP009").severity == "info"


def test_usual_spreads_equal_rewards_and_undivided_advantages_are_quiet() -> None:
    assert run({SPREAD: 0.4}).findings("GRP009") == []
    assert run({SPREAD: 0.0}).findings("GRP009") == []
    assert run({SPREAD: 3e-5}, knobs={"advantage": "centred"}).findings("GRP009") == []
    assert "GRP009" in skipped(run({}, without=(SPREAD, "reward/std")))


def entropy(change: float, *, over: int = 0) -> dict[str, Curve]:
    """An entropy that changes at step 40, at once or over several steps."""

    def level(step: int) -> float:
        return 0.27 + change * min(1.0, max(0, step - 39) / (over or 1))

    return {"entropy/mean": noisy(level, 0.02, 1), OLD: 2e-5, "updates_per_batch": 4}


def test_an_entropy_that_jumps_beyond_the_updates_gets_a_note() -> None:
    finding = run(entropy(0.25)).finding("SYN009")
    assert (finding.severity, finding.onset_step) == ("info", 40)
    assert run(entropy(-0.25)).finding("SYN009").onset_step == 40


def test_slopes_small_steps_and_large_updates_are_quiet() -> None:
    assert run(entropy(0.25, over=15)).findings("SYN009") == []
    assert run(entropy(0.05)).findings("SYN009") == []
    assert run({**entropy(0.25), OLD: 0.05}).findings("SYN009") == []
    assert run(entropy(0.0)).findings("SYN009") == []
    assert "SYN009" in skipped(run({}, without=("entropy/mean",)))


def test_groups_that_one_rank_does_not_centre_are_named() -> None:
    finding = run({UNCENTRED: noisy(0.5, 0.05, 1)}, knobs=GROUP).finding("GRP010")
    assert (finding.severity, finding.remedies) == ("warning", ("check-advantages",))
    assert finding.onset_step == 0
    assert run({UNCENTRED: 1.0}, knobs=GROUP).finding("GRP010").severity == "critical"


def test_centred_groups_and_other_estimators_are_quiet() -> None:
    assert run({UNCENTRED: 0.0}, knobs=GROUP).findings("GRP010") == []
    once = run({UNCENTRED: lambda step: 1.0 if step == 30 else 0.0}, knobs=GROUP)
    assert once.findings("GRP010") == []
    assert run({UNCENTRED: 0.5, WEIGHTED: 0.9}, knobs=GROUP).findings("GRP010") == []
    assert "GRP010" in skipped(run({UNCENTRED: 0.5}, knobs={"advantage": "batch_std"}))
    assert "GRP010" in skipped(run({}, knobs=GROUP))
    assert "GRP010" in skipped(run({UNCENTRED: 0.5, "groups/size": 4}, knobs=GROUP))
    assert "GRP010" in skipped(run({UNCENTRED: 0.5}, knobs={"advantage": "group"}))


def test_copied_responses_are_named() -> None:
    finding = run({COPIES: noisy(0.55, 0.02, 1), CHANCE: noisy(0.15, 0.02, 2)}).finding("DAT006")
    assert (finding.severity, finding.remedies) == ("warning", ("check-copied-rows",))
    assert finding.onset_step == 0


@pytest.mark.parametrize(
    "curves",
    [
        {COPIES: ramp(0.15, 0.9, 60), CHANCE: ramp(0.12, 0.88, 60)},
        {COPIES: lambda step: 0.6 if step % 2 else 0.2, CHANCE: 0.15},
        {COPIES: 0.55, CHANCE: 0.15, GAP: noisy(-0.12, 0.01, 1, low=-1.0)},
    ],
)
def test_duplicates_by_chance_and_of_a_sharper_sampler_are_quiet(curves: dict[str, Curve]) -> None:
    assert run(curves).findings("DAT006") == []


def test_restricted_sampling_and_unknown_probabilities_are_not_judged() -> None:
    assert "DAT006" in skipped(run({}))


GREEDY: dict[str, Curve] = {
    COPIES: 0.875, "groups/size": 8, "entropy/mean": 0.35, "length/mean": 400, "length/max": 900,
    "groups/zero_variance_rate": 1.0,
}  # fmt: skip


def test_groups_of_one_response_contradict_the_entropy() -> None:
    """Greedy sampling in a log without the probabilities of responses."""
    finding = run(GREEDY).finding("DAT006")
    assert (finding.severity, finding.remedies[0]) == ("warning", "one-temperature")
    assert finding.onset_step == 0


@pytest.mark.parametrize("change", [{COPIES: 0.75}, {"entropy/mean": 0.001}, {"groups/size": 10}])
def test_groups_with_two_responses_and_certain_policies_are_quiet(change: dict[str, Curve]) -> None:
    assert run(GREEDY | change).findings("DAT006") == []


@pytest.mark.parametrize(("flat", "is_named"), [(1.0, True), (0.3, False)])
def test_a_dump_whose_rows_are_doubled_is_no_greedy_sampler(flat: float, is_named: bool) -> None:
    """Groups of copies in the dump, and groups that vary in the log."""
    found = run(GREEDY | {"groups/zero_variance_rate": flat}).findings("DAT006")
    assert bool(found) == is_named


RETURNED, BY_CHANCE = "groups/returned_rate", "groups/returned_by_chance"


def test_responses_of_an_earlier_step_are_copies() -> None:
    """A cache with the prompt as its key; it begins once prompts repeat."""
    repeats: Curve = lambda step: 0.9 if step > 6 else None  # noqa: E731
    finding = run({RETURNED: repeats, BY_CHANCE: noisy(0.03, 0.01, 2)}).finding("DAT006")
    assert finding.severity == "warning"
    assert finding.summary.startswith("90% of repeated prompts")


@pytest.mark.parametrize(("share", "chance"), [(0.0, 0.02), (0.9, 0.9), (0.08, 0.02)])
def test_a_policy_that_is_certain_repeats_its_responses(share: float, chance: float) -> None:
    curves: dict[str, Curve] = {RETURNED: noisy(share, 0.01, 1), BY_CHANCE: noisy(chance, 0.01, 2)}
    assert run(curves).findings("DAT006") == []
    copies: dict[str, Curve] = {COPIES: 0.55, CHANCE: 0.15}
    assert "DAT006" in skipped(run(copies, knobs={"top_p": 0.8}))
    assert "DAT006" not in skipped(run(copies, knobs={"top_p": 1.0, "top_k": -1}))


def rate(zero_from: int, *, until: int = 10**6, peak: float = 2e-4) -> dict[str, Curve]:
    """A learning rate that is zero for some steps."""
    return {RATE: lambda step: 0.0 if zero_from <= step < until else peak}


def test_a_rate_that_falls_to_zero_is_named_from_the_fall_on() -> None:
    finding = run(rate(30)).finding("OPT007")
    assert (finding.severity, finding.onset_step, finding.active) == ("warning", 30, True)
    assert finding.remedies == ("check-schedule",)
    assert run(rate(20), count=200).finding("OPT007").onset_step == 20
    assert run(rate(30, peak=1e-4)).finding("OPT007").severity == "warning"


def decay(power: float, count: int = 60, floor: float = 0.0) -> dict[str, Curve]:
    return {RATE: lambda step: 2e-4 * max(floor, (1 - step / count) ** power)}


def test_a_rate_that_is_next_to_zero_for_a_fifth_of_the_run_counts_as_zero() -> None:
    reduced: dict[str, Curve] = {RATE: lambda step: 3e-4 * 0.05 ** min(step // 10, 5)}
    finding = run(reduced, count=80).finding("OPT007")
    assert (finding.severity, finding.onset_step) == ("warning", 30)
    assert "below a thousandth of its peak of 0.0003" in finding.summary
    for curves in (decay(1), decay(3), decay(6, floor=0.002), decay(1, 200)):
        assert run(curves, count=60).findings("OPT007") == []


def test_a_rate_that_the_log_may_have_rounded_to_zero_gets_a_note() -> None:
    rounded = {
        name: (lambda step, each=name: round(healthy(1)[each](step), 4))  # type: ignore[operator]
        for name in (GRADIENT, "optimizer/loss", "entropy/mean", "reward/std", "kl/reference/k3")
    }
    assert run({**rounded, **rate(30, peak=1e-4)}).finding("OPT007").severity == "info"
    assert run({**rounded, **rate(30, peak=5e-4)}).finding("OPT007").severity == "warning"


@pytest.mark.parametrize(
    "curves",
    [
        rate(10**6),
        {RATE: ramp(2e-4, 0.0, 59)},
        rate(0, until=20),
        rate(30, until=35),
        {**rate(30), GRADIENT: 0.0},
    ],
)
def test_schedules_warm_ups_and_dead_gradients_are_quiet(curves: dict[str, Curve]) -> None:
    assert run(curves).findings("OPT007") == []


def test_without_a_logged_rate_it_is_skipped() -> None:
    assert "OPT007" in skipped(run({}, without=(RATE,)))


def skipped(patient: Patient) -> set[str]:
    """Codes of the rules that could not look."""
    return {each.code for each in patient.engine.diagnosis().skipped}


@pytest.mark.parametrize(("advantage", "grew"), [("group", False), ("centred", True)])
def test_rewards_on_another_scale_from_one_step_on_are_named(advantage: str, grew: bool) -> None:
    scaled = {name: scaled_from(30, name, 100) for name in ("reward/mean", "reward/std")}
    finding = run(scaled, count=90, knobs={"advantage": advantage}).finding("REW016")
    assert (finding.severity, finding.onset_step, finding.active) == ("warning", 30, True)
    assert ("updates" in finding.summary) == grew
    assert finding.remedies == ("recheck-reward",)


def scaled_from(step: int, name: str, factor: float) -> Curve:
    curve = healthy(1)[name]
    return lambda at: curve(at) * (factor if at >= step else 1)  # type: ignore[operator]


@pytest.mark.parametrize(
    "spread",
    [
        ramp(0.02, 0.5, 40),
        lambda step: 0.5 if step % 2 else 0.03,
        lambda step: 0.5 if step > 30 else 0.0,
        lambda step: 0.45 if step > 30 else 0.06,
        lambda step: 40.0 if 30 <= step < 33 else 0.4,
    ],
)
def test_spreads_that_grow_begin_at_zero_or_return_are_quiet(spread: Curve) -> None:
    assert run({"reward/std": spread, "groups/reward_std": 0.3}).findings("REW016") == []


def test_the_spread_of_a_component_is_enough_and_without_any_the_scale_is_not_judged() -> None:
    part = "reward/component/task/std"
    spreads = (SPREAD, "reward/std")
    scaled: dict[str, Curve] = {part: scaled_from(30, part, 100)}
    assert run(scaled, without=spreads).finding("REW016").onset_step == 30
    others = ("accuracy/train", "reward/max", "reward/min")
    assert "REW016" in skipped(run({}, without=(*spreads, part, *others)))


def test_rewards_divided_by_ten_are_named_where_a_verifier_that_rejects_is_not() -> None:
    names = ("reward/mean", "reward/std")
    rescaled = {name: scaled_from(30, name, 0.1) for name in names}
    assert run(rescaled, count=60).finding("REW016").onset_step == 30
    rejected: dict[str, Curve] = {
        "reward/mean": lambda step: 0.5 if step < 30 else 0.03,
        "accuracy/train": lambda step: 0.5 if step < 30 else 0.03,
        "reward/std": lambda step: 0.5 if step < 30 else 0.17,
    }
    assert run(rejected, count=60).findings("REW016") == []


def test_another_highest_reward_of_every_batch_is_named() -> None:
    bounds: dict[str, Curve] = {
        "reward/max": lambda step: 1.0 if step < 30 else 5.0,
        "reward/min": 0.0,
    }
    without = (SPREAD, "reward/std")
    assert "from 1 to 5 at step 30" in run(bounds, without=without).finding("REW016").summary
    bounds["reward/max"] = lambda step: 1.0 if step % 3 else 5.0
    assert run(bounds, without=without).findings("REW016") == []


@pytest.mark.parametrize(("jump", "is_named"), [(0.15, False), (0.6, True)])
def test_a_reward_that_moves_with_its_accuracy_is_named_only_if_it_moves_further(
    jump: float, is_named: bool
) -> None:
    """Rewards from -2 to 1: the mean moves three times as far as the accuracy, by .15 here."""
    accuracy = noisy(lambda step: 0.65 if step < 30 else 0.70, 0.01, 4)

    def reward(step: int) -> float:
        value = accuracy(step)
        assert isinstance(value, float)
        return 3 * value - 2 + (jump - 0.15 if step >= 30 else 0.0)

    curves: dict[str, Curve] = {"accuracy/train": accuracy, "reward/mean": reward}
    found = run(curves, without=(SPREAD, "reward/std")).findings("REW016")
    assert bool(found) == is_named


def test_a_mean_beyond_the_rewards_of_before_is_named_without_other_metrics() -> None:
    without = (SPREAD, "reward/std", "accuracy/train")
    means: dict[str, Curve] = {
        "reward/mean": noisy(lambda step: 0.4 if step < 30 else 4.0, 0.03, 1)
    }
    assert run(means, without=without).finding("REW016").onset_step == 30
    means["reward/mean"] = noisy(lambda step: 0.05 if step < 30 else 0.6, 0.01, 1)
    assert run(means, without=without).findings("REW016") == []


def test_a_reward_that_is_one_higher_value_from_one_step_on_is_named() -> None:
    without = (SPREAD, "reward/std", "accuracy/train", "reward/max", "reward/min")

    def findings(level: float, slope: float, noise: float = 0.03) -> list[Finding]:
        before = noisy(lambda step: level + slope * (step - 40), noise, 1)
        rewards: Curve = lambda step: 1.0 if step >= 40 else min(1.0, before(step))  # noqa: E731
        return run({"reward/mean": rewards}, without=without).findings("REW016")

    (finding,) = findings(0.5, 0.005)
    assert finding.onset_step == 40
    assert "to 1 at step 40, for every batch since" in finding.summary
    assert findings(0.95, 0.01) == []  # a task that is nearly solved
    assert findings(0.9, 0.07) == []  # a quick rise that ends at the top
    assert findings(0.6, 0.005, noise=0.15) == []  # few responses


def test_a_reward_that_jumps_while_the_accuracy_stays_is_named() -> None:
    parts: dict[str, Curve] = {
        "reward/mean": noisy(lambda step: 1.9 if step < 30 else 0.9, 0.04, 1),
        "accuracy/train": noisy(0.5, 0.04, 2),
    }
    without = (SPREAD, "reward/std")
    finding = run(parts, without=without).finding("REW016")
    assert (finding.onset_step, finding.severity) == (30, "warning")
    assert "unlike the outcome" in finding.summary
    parts["accuracy/train"] = noisy(lambda step: 0.6 if step < 30 else 0.3, 0.04, 2)
    assert run(parts, without=without).findings("REW016") == []
    parts["accuracy/train"] = noisy(ramp(0.1, 0.9, 60), 0.01, 2)  # while a part dies
    assert run(parts, without=without).finding("REW016").onset_step == 30


@pytest.mark.parametrize("seed", range(20))
def test_a_batch_of_few_responses_has_copies_by_chance(seed: int) -> None:
    """Four independent responses, each a duplicate with a chance of .3: an excess is common."""
    random = np.random.default_rng(seed)
    records = [
        StepRecord(step, {COPIES: Rate(int(count), 4), CHANCE: Mean.of([0.3])})
        for step, count in enumerate(random.binomial(4, 0.3, size=400))
    ]
    assert Patient(records).findings("DAT006") == []
    doubled = [StepRecord(step, {COPIES: Rate(3, 4), CHANCE: Mean.of([0.1])}) for step in range(20)]
    assert Patient(doubled).finding("DAT006").severity == "warning"


SHORTEST, LONGEST, EQUAL_REWARDS = "length/min", "length/max", "groups/zero_variance_rate"


def padded(step: int) -> float:
    return 14.0 + step * 7 % 9


@pytest.mark.parametrize(
    ("change", "is_named"),
    [
        ({}, True),
        ({SHORTEST: 3.0}, False),
        ({SHORTEST: 24.0, LONGEST: 24.0}, False),
        ({EQUAL_REWARDS: 1.0}, False),
    ],
)
def test_batches_whose_responses_have_one_length_count_padding(
    change: dict[str, Curve], is_named: bool
) -> None:
    """Not responses at the limit, of a fixed form, or copies of one response."""
    curves: dict[str, Curve] = {SHORTEST: padded, LONGEST: padded, EQUAL_REWARDS: 0.2}
    without = ("optimizer/environment_token_rate",)
    found = run(curves | change, without=without).findings("DAT001")
    assert [each.severity for each in found] == ["warning"] * is_named

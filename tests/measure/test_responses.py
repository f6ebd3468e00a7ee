import math
from dataclasses import replace

import numpy as np
import pytest

from grpodoctor.errors import DataError
from grpodoctor.measure.groups import groups_of
from grpodoctor.measure.responses import (
    advantage_readings,
    entropy_readings,
    fork_threshold,
    length_readings,
    reward_readings,
    staleness_readings,
)
from grpodoctor.measure.step import rollout_readings
from grpodoctor.vocabulary.metrics import METRICS, metric_of
from grpodoctor.vocabulary.values import Max, Mean, NotApplicable, Rate, scalar


def test_lengths_split_by_correctness_and_truncation(real_batch):
    readings = length_readings(real_batch)
    lengths = real_batch.mask_BT.sum(axis=1)
    expected = {
        "length/mean": lengths.mean(),
        "length/correct": lengths[real_batch.correct_B].mean(),
        "length/incorrect": lengths[~real_batch.correct_B].mean(),
        "length/terminated_mean": lengths[~real_batch.truncated_B].mean(),
        "length/max": lengths.max(),
    }
    for name, value in expected.items():
        assert scalar(readings[name]) == pytest.approx(value), name
    assert readings["length/truncated_rate"] == Rate(int(real_batch.truncated_B.sum()), 128)
    assert readings["length/p95"].quantile(0.95) == pytest.approx(
        np.quantile(lengths, 0.95), rel=0.02
    )
    longest = np.flatnonzero(lengths == lengths.max())
    assert readings["length/max"].where in {real_batch.sequence_ids[i] for i in longest}


def test_an_empty_population_is_not_applicable_rather_than_zero(real_batch):
    everyone = np.ones(128, dtype=bool)
    readings = rollout_readings(
        replace(
            real_batch, correct_B=everyone, truncated_B=everyone, tokens_BT=real_batch.tokens_BT
        )
    )
    for name in ("length/incorrect", "length/terminated_mean", "entropy/incorrect"):
        assert isinstance(readings[name], NotApplicable), name
    assert isinstance(
        rollout_readings(replace(real_batch, truncated_B=~everyone))["reward/truncated"],
        NotApplicable,
    )


def test_rewards_and_their_components(real_batch):
    readings = reward_readings(real_batch)
    rewards = real_batch.rewards_B
    assert scalar(readings["reward/mean"]) == pytest.approx(rewards.mean())
    assert scalar(readings["reward/std"]) == pytest.approx(rewards.std())
    cut = rewards[real_batch.truncated_B]
    assert scalar(readings["reward/truncated"]) == pytest.approx(cut.mean())
    answer = real_batch.components["answer"]
    assert scalar(readings["reward/component/answer/mean"]) == pytest.approx(answer.mean())
    assert scalar(readings["reward/component/answer/std"]) == pytest.approx(answer.std())
    assert readings["accuracy/train"] == Rate.of(real_batch.correct_B)


def test_a_nonfinite_reward_does_not_affect_the_others(real_batch):
    rewards = real_batch.rewards_B.copy()
    rewards[5] = math.nan
    readings = reward_readings(replace(real_batch, rewards_B=rewards))
    finite = np.delete(rewards, 5)
    assert scalar(readings["reward/mean"]) == pytest.approx(finite.mean())
    assert readings["reward/mean"].nonfinite == 1
    assert scalar(readings["reward/std"]) == pytest.approx(finite.std())


def test_entropy_by_correctness_and_at_forks(real_batch):
    readings = entropy_readings(real_batch)
    mask, entropy = real_batch.mask_BT, real_batch.entropy_BT.astype(float)
    flat = entropy[mask]
    assert scalar(readings["entropy/mean"]) == pytest.approx(flat.mean())
    right = real_batch.correct_B
    assert scalar(readings["entropy/correct"]) == pytest.approx(entropy[right][mask[right]].mean())
    assert scalar(readings["entropy/incorrect"]) == pytest.approx(
        entropy[~right][mask[~right]].mean()
    )
    forks = flat[flat >= np.quantile(flat, 0.8)]
    assert scalar(readings["entropy/fork_tokens"]) == pytest.approx(forks.mean())
    assert readings["entropy/p10"].quantile(0.1) == pytest.approx(np.quantile(flat, 0.1), rel=0.05)


@pytest.mark.parametrize("size", [1, 2, 5, 6, 1000])
def test_the_fork_threshold_is_the_interpolated_quantile(size):
    values = np.random.default_rng(size).random(size)
    assert fork_threshold(values) == pytest.approx(np.quantile(values, 0.8))


def test_standardised_advantages_meet_their_bound_and_no_more(real_batch):
    rewards = np.zeros(8)
    rewards[3] = 1.0
    advantages = np.zeros(128)
    advantages[:8] = (rewards - rewards.mean()) / rewards.std()
    groups = groups_of(real_batch.group_ids_B)
    readings = advantage_readings(replace(real_batch, advantages_B=advantages), groups)
    assert readings["advantage/abs_max"] == Max(pytest.approx(math.sqrt(7)), "3-3")
    assert scalar(readings["advantage/bound_excess"]) == pytest.approx(1.0)
    lengths = real_batch.mask_BT.sum(axis=1)
    assert readings["advantage/positive_rate"] == Rate(int(lengths[3]), int(lengths.sum()))
    assert readings["advantage/zero_rate"] == Rate(int(lengths[8:].sum()), int(lengths.sum()))


def test_the_advantage_bound_is_that_of_each_groups_own_size(core_batch):
    batch = replace(core_batch, group_ids_B=np.array([0, 1]))
    readings = advantage_readings(batch, groups_of(batch.group_ids_B))
    assert isinstance(readings["advantage/bound_excess"], NotApplicable)
    readings = advantage_readings(core_batch, groups_of(core_batch.group_ids_B))
    assert readings["advantage/bound_excess"] == Mean.of([1.0])


def test_first_ratios_distinguish_off_policy_logprobs_from_rounding(real_batch):
    rounding = real_batch.learner_logprobs_BT + np.float32(3e-6)
    tokens = int(real_batch.mask_BT.sum())
    own = staleness_readings(replace(real_batch, old_logprobs_BT=rounding))
    assert own["mismatch/first_ratio_off"] == Rate(0, tokens)
    foreign = staleness_readings(
        replace(real_batch, old_logprobs_BT=real_batch.sampler_logprobs_BT)
    )
    assert foreign["mismatch/first_ratio_off"].value > 0.9
    broken = real_batch.learner_logprobs_BT.copy()
    broken[0, 0] = -np.inf
    hole = staleness_readings(replace(real_batch, old_logprobs_BT=broken))
    assert hole["mismatch/first_ratio_off"] == Rate(1, tokens)
    assert "mismatch/first_ratio_off" not in staleness_readings(
        replace(real_batch, old_logprobs_BT=None)
    )


def test_staleness_keeps_the_oldest_response(real_batch):
    ages = np.zeros(128, dtype=int)
    ages[77] = 9
    readings = staleness_readings(replace(real_batch, staleness_B=ages))
    assert readings["staleness/max"] == Max(9.0, "3-77")
    assert readings["staleness/mean"] == Mean.of(ages)


def test_every_reading_is_in_the_vocabulary_and_within_its_range(real_batch, core_batch):
    for batch in (real_batch, core_batch):
        for name, reading in rollout_readings(batch).items():
            metric = metric_of(name)
            assert metric is not None, name
            if isinstance(reading, NotApplicable):
                continue
            kind = "max" if name.endswith("/worst_sequence") else metric.kind
            assert type(reading).__name__.lower() == kind, name
            assert metric.low <= reading.value <= metric.high, name


def test_a_full_batch_leaves_no_rollout_metric_unmeasured(real_batch):
    families = ("reward/", "length/", "entropy/", "groups/", "mismatch/", "advantage/", "text/",
                "staleness/")  # fmt: skip
    elsewhere = {
        *("advantage/lambda_mean", "advantage/token_weight", "reward/heldout", "reward/kl_penalty"),
        *("groups/generated_per_kept", "groups/limit_hit_rate"),
        *("groups/returned_rate", "groups/returned_by_chance"),  # of dumps: of several steps
        "entropy/sampled",  # what frameworks log that keep no distribution
        # logged by frameworks that keep no responses
        *("advantage/mean", "advantage/max", "advantage/min", "reward/max", "reward/min"),
        "reward/kept_mean",
        "length/end_tokens",
        *("length/min", "length/prompt_mean", "length/prompt_truncated_rate", "mismatch/kl_k2"),
    }
    expected = {
        metric.name
        for metric in METRICS
        if metric.name.startswith(families) and "<" not in metric.name
    }
    assert expected - elsewhere - rollout_readings(real_batch).keys() == set()


def test_padding_is_never_read(real_batch):
    pad = ~real_batch.mask_BT
    garbage = {
        name: np.where(pad, 1e30, getattr(real_batch, name))
        for name in ("learner_logprobs_BT", "sampler_logprobs_BT", "old_logprobs_BT", "entropy_BT")
    }
    tokens = np.where(pad, 999, real_batch.tokens_BT)
    clean = {name: getattr(real_batch, name).astype(float) for name in garbage}
    spoiled = replace(real_batch, tokens_BT=tokens, **garbage)
    assert rollout_readings(spoiled) == rollout_readings(replace(real_batch, **clean))


def test_an_empty_batch_gives_nothing(real_batch, rows_of):
    assert rollout_readings(rows_of(real_batch, slice(0, 0))) == {}


def test_responses_without_tokens_change_nothing(real_batch, rows_of):
    batch = rows_of(real_batch, slice(0, 8))
    empty = replace(batch, mask_BT=np.zeros_like(batch.mask_BT), loss_mask_BT=None)
    readings = rollout_readings(empty)
    assert readings["length/mean"] == Mean.of([0] * 8)
    measured = {name for name, each in readings.items() if not isinstance(each, NotApplicable)}
    assert not any(name.startswith(("mismatch/", "entropy/")) for name in measured)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rewards_B", np.zeros(127)),
        ("texts", ["a"]),
        ("entropy_BT", np.zeros((128, 27))),
        ("tokens_BT", np.zeros(128, dtype=int)),
        ("components", {"format": np.zeros(3)}),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(real_batch, field, value):
    named = {"components": "format", "tokens_BT": "token array"}.get(field, field)
    with pytest.raises(DataError, match=named):
        replace(real_batch, **{field: value})


def test_advantages_of_single_tokens_are_counted_token_by_token(core_batch):
    groups = groups_of(core_batch.group_ids_B)
    advantages_BT = np.array([[2.0, -3.0, 0.0], [-0.5, 1.0, 9.0]])  # the 9 is in the padding
    batch = replace(core_batch, advantages_B=np.array([-1 / 3, 0.25]), advantages_BT=advantages_BT)
    readings = advantage_readings(batch, groups)
    assert readings["advantage/abs_max"] == Max(3.0, core_batch.sequence_ids[0])
    assert readings["advantage/positive_rate"] == Rate(2, 5)
    assert readings["advantage/zero_rate"] == Rate(1, 5)
    assert isinstance(readings["advantage/bound_excess"], NotApplicable)

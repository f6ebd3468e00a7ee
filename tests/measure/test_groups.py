from dataclasses import replace

import numpy as np
import pytest

from grpodoctor.measure.groups import (
    REPEATED_PROMPTS,
    group_readings,
    groups_of,
    length_gap,
    uncentred_rate,
)
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate, merge_all, scalar


def _batch(real_batch, rows_of, rewards, **changes):
    """Groups of four with the given rewards, their ids not in order."""
    batch = rows_of(real_batch, slice(0, len(rewards)))
    group_ids_B = np.repeat([9, 2, 5, 7][: len(rewards) // 4], 4)
    return replace(
        batch,
        group_ids_B=group_ids_B,
        rewards_B=np.array(rewards),
        correct_B=np.array(rewards) > 0.5,
        **{"components": {}, **changes},
    )


def _readings(batch):
    return group_readings(batch, groups_of(batch.group_ids_B))


def test_zero_variance_is_split_into_its_causes(real_batch, rows_of):
    rewards = [1.0] * 4 + [0.0] * 4 + [1.0, 0.0, 0.0, 1.0] + [0.3] * 4
    answer = np.array([1.0] * 4 + [0.0] * 4 + [1.0, 0.0, 0.0, 1.0] + [0.3, 0.1, 0.2, 0.3])
    components = {"answer": answer, "format": np.array(rewards) - answer}
    readings = _readings(_batch(real_batch, rows_of, rewards, components=components))
    assert readings["groups/zero_variance_rate"] == Rate(3, 4)
    assert readings["groups/effective_rate"] == Rate(1, 4)
    assert readings["groups/all_correct_rate"] == Rate(1, 4)
    assert readings["groups/all_incorrect_rate"] == Rate(2, 4)
    assert readings["groups/cancelled_rate"] == Rate(1, 4)
    assert readings["groups/reward_std"] == Mean.of([0.0, 0.0, 0.5, 0.0])


def test_a_component_that_varies_alone_has_no_weight_and_cancels_nothing(real_batch, rows_of):
    components = {"answer": np.zeros(8), "format": np.array([1.0, 0.0] * 4)}
    readings = _readings(_batch(real_batch, rows_of, [0.0] * 8, components=components))
    assert readings["groups/cancelled_rate"] == Rate(0, 2)


def test_rounding_is_not_variance_but_a_small_difference_is(real_batch, rows_of):
    rounding = [0.1 + 0.2, 0.3, np.float64(np.float32(0.3)), 0.3]
    small = [1.0, 1.0, 1.0, 1.0 + 1e-4]
    readings = _readings(_batch(real_batch, rows_of, rounding + small))
    assert readings["groups/zero_variance_rate"] == Rate(1, 2)
    assert readings["groups/effective_rate"] == Rate(1, 2)
    assert scalar(readings["groups/reward_std"]) == pytest.approx(np.std(small) / 2)


def test_interleaved_groups_are_found(real_batch, rows_of):
    batch = _batch(real_batch, rows_of, [1.0, 0.0] * 4)
    batch = replace(batch, group_ids_B=np.array([7, 3] * 4))
    readings = _readings(batch)
    assert readings["groups/all_correct_rate"] == Rate(1, 2)
    assert readings["groups/all_incorrect_rate"] == Rate(1, 2)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_nonfinite_reward_makes_its_group_useless(real_batch, rows_of, bad):
    readings = _readings(_batch(real_batch, rows_of, [bad, 1.0, 1.0, 0.0] + [bad] * 4))
    assert readings["groups/effective_rate"] == Rate(0, 2)
    assert readings["groups/zero_variance_rate"] == Rate(0, 2)
    assert readings["groups/reward_std"].nonfinite == 2


def test_without_correctness_or_components_the_split_is_absent(real_batch, rows_of):
    batch = replace(_batch(real_batch, rows_of, [1.0] * 8), correct_B=None)
    readings = _readings(batch)
    assert readings["groups/zero_variance_rate"] == Rate(2, 2)
    assert not {"groups/all_correct_rate", "groups/cancelled_rate", "length/group_gap"} & set(
        readings
    )


def test_duplicates_count_within_a_group_and_ignore_padding(real_batch, rows_of):
    batch = _batch(real_batch, rows_of, [1.0] * 8)
    tokens_BT, mask_BT = np.arange(8 * 28).reshape(8, 28), np.zeros((8, 28), dtype=bool)
    mask_BT[:, :3] = True
    tokens_BT[1, :3] = tokens_BT[2, :3] = tokens_BT[0, :3]
    tokens_BT[5, :3] = tokens_BT[0, :3]
    mask_BT[3, :2], tokens_BT[3, :2] = [True, True], tokens_BT[0, :2]
    mask_BT[3, 2] = False
    readings = _readings(replace(batch, tokens_BT=tokens_BT, mask_BT=mask_BT))
    assert readings["groups/duplicate_rate"] == Rate(2, 8)


def test_the_length_gap_is_computed_within_prompts(real_batch, rows_of):
    """Long answers to a hard prompt that is always failed must not make a gap."""
    rewards = [1.0, 0.0, 0.0, 1.0] + [0.0] * 4
    lengths = np.array([4, 6, 8, 2, 28, 28, 28, 28])
    mask_BT = np.arange(28) < lengths[:, None]
    batch = replace(_batch(real_batch, rows_of, rewards), mask_BT=mask_BT)
    assert _readings(batch)["length/group_gap"] == Mean.of([7.0 - 3.0])
    assert isinstance(_readings(rows_of(batch, slice(4, 8)))["length/group_gap"], NotApplicable)


def test_ranks_that_hold_whole_groups_merge_to_the_whole(real_batch, rows_of):
    parts = [_readings(rows_of(real_batch, rows)) for rows in (slice(0, 40), slice(40, 128))]
    merged, whole = merge_all(*parts), _readings(real_batch)
    repeats = [readings.pop(REPEATED_PROMPTS) for readings in (merged, whole)]
    assert merged == whole
    assert repeats == [Rate(14, 16), Rate(15, 16)]  # both ranks have the prompt: see `merge_parts`


def test_groups_that_repeat_a_prompt(real_batch, rows_of):
    batch = rows_of(real_batch, slice(0, 32))
    batch = replace(batch, prompt_tokens=None)
    different = replace(batch, prompts=[f"prompt {row // 8}" for row in range(32)])
    assert _readings(different)[REPEATED_PROMPTS] == Rate(0, 4)
    two = replace(batch, prompts=[f"prompt {row // 8 % 2}" for row in range(32)])
    assert _readings(two)[REPEATED_PROMPTS] == Rate(2, 4)
    # Token ids are what the model read, whatever the text is.
    ids = [np.array([1, row // 8]) for row in range(32)]
    assert _readings(replace(two, prompt_tokens=ids))[REPEATED_PROMPTS] == Rate(0, 4)
    assert REPEATED_PROMPTS not in _readings(replace(two, prompts=[""] * 32))
    assert REPEATED_PROMPTS not in _readings(replace(two, prompts_are_whole=False))
    alone = replace(two, group_ids_B=np.arange(32))
    assert REPEATED_PROMPTS not in _readings(alone)


def test_an_infinite_length_of_a_damaged_dump_raises_no_warning():
    groups = groups_of(np.zeros(4, dtype=np.int64))
    lengths = np.array([4.0, np.inf, 6.0, 8.0])
    gap = length_gap(lengths, groups, np.array([True, False, True, True]))
    assert (gap.count, gap.nonfinite) == (0, 1)


def test_the_expected_share_of_duplicates_is_that_of_independent_draws(real_batch, rows_of):
    """Sixteen groups of eight draws of two tokens: a coin and a die, both fair."""
    random = np.random.default_rng(1)
    batch = rows_of(real_batch, slice(0, 128))
    tokens_BT = np.zeros_like(batch.tokens_BT)
    tokens_BT[:, 0], tokens_BT[:, 1] = random.integers(2, size=128), random.integers(6, size=128)
    mask_BT = np.zeros_like(batch.mask_BT)
    mask_BT[:, :2] = True
    sampler_BT = np.full(mask_BT.shape, np.nan)
    sampler_BT[:, :2] = -np.log([2.0, 6.0])
    drawn = replace(
        batch,
        tokens_BT=tokens_BT,
        mask_BT=mask_BT,
        sampler_logprobs_BT=sampler_BT,
        learner_logprobs_BT=None,
        group_ids_B=np.arange(128) % 16,
    )
    readings = _readings(drawn)
    expected = scalar(readings["groups/expected_duplicate_rate"])
    assert expected == pytest.approx(np.mean([1 - (11 / 12) ** earlier for earlier in range(8)]))
    order = np.random.default_rng(1).permutation(128)
    shuffled = _readings(rows_of(drawn, order))["groups/expected_duplicate_rate"]
    assert scalar(shuffled) == pytest.approx(expected)
    assert scalar(readings["groups/duplicate_rate"]) == pytest.approx(expected, abs=0.08)
    copied = replace(drawn, tokens_BT=np.repeat(tokens_BT[:64], 2, axis=0))
    copied = replace(copied, group_ids_B=np.arange(128) // 8)
    assert scalar(_readings(copied)["groups/duplicate_rate"]) > 0.5


def test_the_larger_probability_of_the_two_engines_counts(real_batch, rows_of):
    batch = rows_of(real_batch, slice(0, 8))
    certain = np.zeros_like(batch.sampler_logprobs_BT)
    sure = _readings(replace(batch, learner_logprobs_BT=certain))
    assert scalar(sure["groups/expected_duplicate_rate"]) == 7 / 8
    unknown = replace(batch, learner_logprobs_BT=None, sampler_logprobs_BT=None)
    assert "groups/expected_duplicate_rate" not in _readings(unknown)


def test_groups_whose_advantages_do_not_sum_to_zero_are_counted():
    groups = groups_of(np.array([4, 2, 4, 2, 7, 7, 9, 9]))
    rewards = np.array([1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0])
    centred = np.array([0.5, 0.5, -0.5, -0.5, 0.0, 0.0, 0.5, -0.5])
    trained = np.ones(8, dtype=bool)
    assert uncentred_rate(groups, centred, rewards, trained) == Rate(0, 3)
    rounded = centred + 1e-3 * centred**2
    assert uncentred_rate(groups, rounded, rewards, trained) == Rate(0, 3)
    half = np.where(groups.index_B == 1, rewards, centred)
    assert uncentred_rate(groups, half, rewards, trained) == Rate(1, 3)
    masked = trained.copy()
    masked[0] = False
    assert uncentred_rate(groups, half, rewards, masked) == Rate(0, 2)
    assert isinstance(uncentred_rate(groups, half, np.ones(8), trained), NotApplicable)

import math
from dataclasses import replace

import numpy as np
import pytest

from grpodoctor.measure.updates import update_readings
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.values import Max, Mean, NotApplicable, Rate, merge_all, scalar


def test_agrees_with_the_literature_on_the_core_vectors(core_update, vectors):
    expected = vectors["old_against_sampler"]
    readings = update_readings(core_update, on_policy=False)
    assert scalar(readings["kl/old_policy/k1"]) == pytest.approx(expected["old_policy_k1"])
    for estimator, value in vectors["kl_reference"].items():
        assert scalar(readings[f"kl/reference/{estimator}"]) == pytest.approx(value), estimator
    sides = readings["clip/low_rate"].value + readings["clip/high_rate"].value
    assert sides == pytest.approx(expected["clip_rate_either_side"])
    assert sides < expected["band_exit_rate"]
    assert scalar(readings["ratio/mean"]) == pytest.approx(np.mean([1.1, 2.2, 2 / 3, 0.45, 5.0]))
    assert readings["ratio/max"] == Max(pytest.approx(5.0), "short")
    assert readings["ratio/sequence_max"] == Max(pytest.approx(math.sqrt(0.45 * 5)), "short")


def test_clipping_counts_only_tokens_without_gradient(core_update):
    """r: long 1.1 2.2 .67, short .45 5.0; long has A > 0, short has A < 0."""
    readings = update_readings(core_update, on_policy=False)
    assert (readings["clip/low_rate"], readings["clip/high_rate"]) == (Rate(1, 5), Rate(1, 5))
    flipped = replace(core_update, advantages_BT=-core_update.advantages_BT)
    readings = update_readings(flipped, on_policy=False)
    assert (readings["clip/low_rate"], readings["clip/high_rate"]) == (Rate(1, 5), Rate(1, 5))
    nobody = replace(core_update, advantages_BT=np.zeros((2, 3)))
    readings = update_readings(nobody, on_policy=False)
    assert (readings["clip/low_rate"], readings["clip/high_rate"]) == (Rate(0, 5), Rate(0, 5))
    wide = replace(core_update, clip_low=0.6, clip_high=1.5)
    readings = update_readings(wide, on_policy=False)
    assert (readings["clip/low_rate"], readings["clip/high_rate"]) == (Rate(0, 5), Rate(0, 5))


def test_the_second_clip_stops_large_ratios_of_negative_advantage(core_update):
    readings = update_readings(core_update, on_policy=False)
    assert isinstance(readings["clip/dual_rate"], NotApplicable)
    readings = update_readings(replace(core_update, dual_clip=3.0), on_policy=False)
    assert readings["clip/dual_rate"] == Rate(1, 5)
    readings = update_readings(replace(core_update, dual_clip=6.0), on_policy=False)
    assert readings["clip/dual_rate"] == Rate(0, 5)


def test_on_policy_clip_fractions_are_not_applicable(core_update):
    entropy_BT = np.ones((2, 3))
    readings = update_readings(replace(core_update, entropy_BT=entropy_BT), on_policy=True)
    clips = [reading for name, reading in readings.items() if name.startswith("clip/")]
    assert len(clips) == 4
    assert all(isinstance(reading, NotApplicable) for reading in clips)
    assert isinstance(readings["ratio/mean"], Mean)


def test_the_clip_flags_of_the_loss_take_precedence(core_update):
    low_BT = np.array([[True, False, True], [False, False, True]])
    update = replace(core_update, clipped_low_BT=low_BT, clipped_high_BT=~low_BT)
    readings = update_readings(update, on_policy=False)
    assert (readings["clip/low_rate"], readings["clip/high_rate"]) == (Rate(2, 5), Rate(3, 5))


def test_a_loss_that_clips_responses_is_counted_in_responses(core_update):
    flags = {"clipped_low_BT": np.array([[True], [False]]),
             "clipped_high_BT": np.array([[False], [False]])}  # fmt: skip
    update = replace(core_update, entropy_BT=np.ones((2, 3)), **flags)
    readings = update_readings(update, on_policy=False)
    assert (readings["clip/low_rate"], readings["clip/high_rate"]) == (Rate(1, 2), Rate(0, 2))
    assert isinstance(readings["clip/fork_token_rate"], NotApplicable)
    mask_BT = core_update.loss_mask_BT.copy()
    mask_BT[0] = False
    readings = update_readings(replace(update, loss_mask_BT=mask_BT), on_policy=False)
    assert readings["clip/low_rate"] == Rate(0, 1)


def test_a_loss_that_clips_nothing_has_no_clip_fraction(core_update):
    gate_BT = np.where(core_update.loss_mask_BT, 0.5, np.nan)
    soft = replace(core_update, clip_low=None, clip_high=None, gate_BT=gate_BT)
    readings = update_readings(soft, on_policy=False)
    for name in ("clip/low_rate", "clip/high_rate", "clip/dual_rate", "clip/fork_token_rate"):
        assert isinstance(readings[name], NotApplicable)
    assert scalar(readings["clip/gate_mean"]) == 0.5
    assert "clip/gate_mean" not in update_readings(core_update, on_policy=False)


def test_staleness_counts_responses_in_the_loss(core_update):
    stale = replace(core_update, stale_B=np.array([False, True]))
    assert update_readings(stale, on_policy=True)["correction/stale_rate"] == Rate(1, 2)
    mask_BT = core_update.loss_mask_BT & np.array([[False], [True]])
    readings = update_readings(replace(stale, loss_mask_BT=mask_BT), on_policy=True)
    assert readings["correction/stale_rate"] == Rate(1, 1)


def test_clipping_at_forks_looks_at_the_most_uncertain_tokens(core_update):
    at_the_clipped = np.array([[0.1, 2.0, 0.1], [0.1, 0.1, 9.0]])
    elsewhere = np.array([[2.0, 0.1, 0.1], [0.1, 0.1, 9.0]])
    for entropy_BT, expected in ((at_the_clipped, Rate(1, 1)), (elsewhere, Rate(0, 1))):
        readings = update_readings(replace(core_update, entropy_BT=entropy_BT), on_policy=False)
        assert readings["clip/fork_token_rate"] == expected


def test_corrections_are_read_as_applied(core_update):
    weights_BT = np.array([[1.0, 1.25, 2.0], [0.75, 0.25, 1e9]])
    update = replace(core_update, weights_BT=weights_BT, capped_BT=weights_BT >= 2)
    readings = update_readings(update, on_policy=False)
    assert readings["correction/weight_mean"] == Mean.of([1.0, 1.25, 2.0, 0.75, 0.25])
    assert readings["correction/capped_rate"] == Rate(1, 5)


@pytest.mark.parametrize(("loss", "grad_norm"), [(math.nan, 1.0), (0.1, math.inf)])
def test_a_nonfinite_step_is_counted_and_excluded_from_means(core_update, loss, grad_norm):
    broken = update_readings(replace(core_update, loss=loss, grad_norm=grad_norm), on_policy=False)
    assert broken["optimizer/nonfinite"] == Rate(1, 1)
    merged = merge_all(broken, update_readings(core_update, on_policy=False))
    assert merged["optimizer/nonfinite"] == Rate(1, 2)
    assert math.isfinite(scalar(merged["optimizer/loss"]))
    assert math.isfinite(scalar(merged["optimizer/grad_norm"]))


def test_an_empty_loss_mask_is_reported_without_error(core_update):
    empty = replace(core_update, loss_mask_BT=np.zeros((2, 3), dtype=bool))
    readings = update_readings(empty, on_policy=False)
    assert readings["optimizer/loss_tokens"] == Mean.of([0])
    assert isinstance(readings["ratio/mean"], NotApplicable)
    assert isinstance(readings["clip/high_rate"], NotApplicable)


def test_an_overflowing_ratio_names_its_sequence(core_update):
    old = core_update.old_logprobs_BT.copy()
    old[1, 1] = -1e4
    readings = update_readings(replace(core_update, old_logprobs_BT=old), on_policy=False)
    assert readings["ratio/max"] == Max(math.inf, "short")
    assert readings["ratio/mean"].nonfinite == 1
    old[1, 1] = -np.inf
    readings = update_readings(replace(core_update, old_logprobs_BT=old), on_policy=False)
    assert readings["kl/old_policy/k1"].nonfinite == 1


def test_micro_batches_merge_to_the_token_mean_not_to_a_mean_of_means(core_update, vectors):
    """Two halves of 6 and 2 tokens: the trap of averaging the averages."""
    fixture = vectors["micro_batches"]
    rows = fixture["per_token"]
    log_ratios, mask_BT = np.zeros((4, 4)), np.zeros((4, 4), dtype=bool)
    for row, values in enumerate(rows):
        log_ratios[row, : len(values)], mask_BT[row, : len(values)] = values, True

    def half(part):
        return update_readings(
            replace(
                core_update,
                sequence_ids=["a", "b"],
                new_logprobs_BT=np.zeros((2, 4)),
                old_logprobs_BT=log_ratios[part],
                reference_logprobs_BT=None,
                advantages_BT=np.ones((2, 4)),
                loss_mask_BT=mask_BT[part],
            ),
            on_policy=False,
        )

    halves = [half(slice(0, 2)), half(slice(2, 4))]
    merged = merge_all(*halves)
    assert scalar(merged["kl/old_policy/k1"]) == pytest.approx(fixture["token_mean"])
    means = [scalar(each["kl/old_policy/k1"]) for each in halves]
    assert np.mean(means) == pytest.approx(fixture["mean_of_micro_batch_means"])
    assert merged["optimizer/loss_tokens"] == Mean.of([6, 2])


def test_every_reading_is_in_the_vocabulary_and_within_its_range(core_update):
    update = replace(
        core_update,
        entropy_BT=np.ones((2, 3)),
        weights_BT=np.ones((2, 3)),
        capped_BT=np.zeros((2, 3), dtype=bool),
        dual_clip=3.0,
    )
    for name, reading in update_readings(update, on_policy=False).items():
        metric = metric_of(name)
        assert metric is not None, name
        assert type(reading).__name__.lower() == metric.kind, name
        assert metric.low <= reading.value <= metric.high, name


def test_a_tiny_divergence_is_never_negative(core_update):
    noise = np.random.default_rng(0).normal(0, 1e-9, (2, 3))
    update = replace(core_update, new_logprobs_BT=core_update.old_logprobs_BT + noise)
    assert scalar(update_readings(update, on_policy=False)["kl/old_policy/k3"]) >= 0

import math
from dataclasses import replace

import numpy as np
import pytest

from grpodoctor.measure.mismatch import FAR, mismatch_readings
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.values import Max, NotApplicable, Rate, merge_all, scalar


def test_agrees_with_the_literature_on_the_core_vectors(core_batch, vectors):
    expected = vectors["old_against_sampler"]
    readings = mismatch_readings(core_batch)
    for name in ("kl_k1", "kl_k3", "chi2", "ess", "pearson"):
        assert scalar(readings[f"mismatch/{name}"]) == pytest.approx(expected[name], abs=1e-9), name
    assert scalar(readings["mismatch/bias"]) == pytest.approx(-expected["kl_k1"], abs=1e-9)
    for figure in ("mean", "max"):
        per_response = expected[f"prob_diff_{figure}_per_response"]
        assert scalar(readings[f"mismatch/prob_diff_{figure}"]) == pytest.approx(
            np.mean(per_response), abs=1e-9
        )
        worst = readings[f"mismatch/prob_diff_{figure}/worst_sequence"]
        assert isinstance(worst, Max)
        assert worst.value == pytest.approx(max(per_response), abs=1e-9)
        assert worst.where == "long"
    assert readings["mismatch/far_rate"] == Rate(2, 5)
    gap = expected["nll_old"] - np.mean([0.5, 1.0, 0.1, 0.7, 1.5])
    assert scalar(readings["mismatch/nll_gap"]) == pytest.approx(gap, abs=1e-9)


def test_a_ratio_is_off_beyond_a_factor_of_two(core_batch):
    shift = np.array([[FAR * 1.001, -FAR * 1.001, FAR * 0.999], [0.0, 0.0, 0.0]])
    batch = replace(core_batch, sampler_logprobs_BT=core_batch.learner_logprobs_BT + shift)
    assert mismatch_readings(batch)["mismatch/far_rate"] == Rate(2, 5)


def test_the_same_engine_shows_no_difference(core_batch):
    batch = replace(core_batch, sampler_logprobs_BT=core_batch.learner_logprobs_BT)
    readings = mismatch_readings(batch)
    for name, reading in readings.items():
        value = scalar(reading)
        if name in ("mismatch/ess", "mismatch/pearson"):
            assert value == pytest.approx(1.0)
        elif name != "mismatch/nll_gap":
            assert value == 0.0, name


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("side", ["learner_logprobs_BT", "sampler_logprobs_BT"])
def test_a_nonfinite_token_is_counted_and_excluded(core_batch, bad, side):
    spoiled = getattr(core_batch, side).copy()
    spoiled[0, 1] = bad
    without = core_batch.mask_BT.copy()
    without[0, 1] = False
    found = mismatch_readings(replace(core_batch, **{side: spoiled}))
    clean = mismatch_readings(replace(core_batch, mask_BT=without))
    assert found["mismatch/nonfinite"] == Rate(1, 5)
    for name in (
        "bias",
        "kl_k1",
        "kl_k3",
        "chi2",
        "ess",
        "pearson",
        "prob_diff_mean/worst_sequence",
    ):
        assert found[f"mismatch/{name}"] == clean[f"mismatch/{name}"], name


def test_a_batch_without_finite_tokens_is_reported(core_batch):
    batch = replace(core_batch, sampler_logprobs_BT=np.full((2, 3), -np.inf))
    readings = mismatch_readings(batch)
    assert readings["mismatch/nonfinite"] == Rate(5, 5)
    assert isinstance(readings["mismatch/prob_diff_max"], NotApplicable)
    assert isinstance(readings["mismatch/ess"], NotApplicable)


def test_an_absurd_ratio_overflows_nothing(core_batch):
    absurd = core_batch.sampler_logprobs_BT.copy()
    absurd[1, 0] = -900.0
    readings = mismatch_readings(replace(core_batch, sampler_logprobs_BT=absurd))
    assert scalar(readings["mismatch/ess"]) == pytest.approx(1 / 5)
    assert readings["mismatch/chi2"].nonfinite == 1
    assert math.isfinite(scalar(readings["mismatch/chi2"]))
    assert readings["mismatch/logprob_diff_max/worst_sequence"].where == "short"


def test_garbage_from_an_engine_neither_raises_nor_warns(core_batch):
    garbage = np.array([[800.0, -1e300, 1e300], [np.inf, np.nan, 0.0]])
    entropy = np.array([[np.inf, np.nan, 1e300], [-np.inf, 0.0, 0.0]])
    batch = replace(core_batch, sampler_logprobs_BT=garbage, entropy_BT=entropy)
    assert mismatch_readings(batch)["mismatch/nonfinite"] == Rate(2, 5)
    batch = replace(core_batch, learner_logprobs_BT=garbage, entropy_BT=entropy)
    assert mismatch_readings(batch)["mismatch/nonfinite"] == Rate(2, 5)


def test_unrecorded_columns_give_no_readings(core_batch):
    without_sampler = mismatch_readings(replace(core_batch, sampler_logprobs_BT=None))
    assert list(without_sampler) == ["mismatch/nll_gap"]
    assert mismatch_readings(replace(core_batch, learner_logprobs_BT=None)) == {}
    without_entropy = mismatch_readings(replace(core_batch, entropy_BT=None))
    assert "mismatch/nll_gap" not in without_entropy
    assert "mismatch/bias" in without_entropy


def _long_batch(core_batch, gap_BT):
    """Responses of 300 tokens whose log-probabilities differ by `gap_BT`."""
    shape = gap_BT.shape
    ids = [f"s{i}" for i in range(shape[0])]
    return replace(
        core_batch,
        sequence_ids=ids,
        group_ids_B=np.zeros(shape[0], dtype=int),
        prompt_ids=ids,
        prompts=ids,
        texts=ids,
        references=ids,
        tokens_BT=np.ones(shape, dtype=int),
        mask_BT=np.ones(shape, dtype=bool),
        rewards_B=np.zeros(shape[0]),
        truncated_B=np.zeros(shape[0], dtype=bool),
        correct_B=None,
        advantages_B=None,
        learner_logprobs_BT=np.full(shape, -1.0) + gap_BT,
        sampler_logprobs_BT=np.full(shape, -1.0),
        old_logprobs_BT=None,
        entropy_BT=None,
    )


def test_position_buckets_show_where_a_gap_begins(core_batch):
    gap_BT = np.zeros((2, 300))
    gap_BT[:, 64:] = -0.25
    readings = mismatch_readings(_long_batch(core_batch, gap_BT))
    by_position = {
        name.rsplit("/", 1)[1]: scalar(reading)
        for name, reading in readings.items()
        if name.startswith("mismatch/logprob_diff_mean/position/")
    }
    assert by_position == {"0-15": 0.0, "16-63": 0.0, "64-255": 0.25, "256-1023": 0.25}


def test_probability_buckets_follow_the_sampler(core_batch):
    batch = _long_batch(core_batch, np.zeros((1, 4)))
    sampler = np.log([[0.05, 0.3, 0.95, 1.0]])
    learner = sampler + np.array([[0.5, 0.25, 0.0, -0.125]])
    readings = mismatch_readings(
        replace(batch, sampler_logprobs_BT=sampler, learner_logprobs_BT=learner)
    )
    found = {
        name.rsplit("/", 1)[1]: scalar(reading)
        for name, reading in readings.items()
        if name.startswith("mismatch/logprob_diff_mean/probability/")
    }
    assert found == pytest.approx({"0-0.1": 0.5, "0.1-0.5": 0.25, "0.9-0.99": 0.0, "0.99-1": 0.125})


def test_one_bad_response_among_many_is_named(core_batch):
    gap_BT = np.zeros((200, 50))
    gap_BT[137] = 0.7
    readings = mismatch_readings(_long_batch(core_batch, gap_BT))
    assert scalar(readings["mismatch/logprob_diff_mean"]) < 0.004
    worst = readings["mismatch/logprob_diff_mean/worst_sequence"]
    assert (worst.value, worst.where) == (pytest.approx(0.7), "s137")


def test_two_halves_of_a_batch_merge_to_the_whole(core_batch, rows_of):
    whole = _long_batch(core_batch, np.random.default_rng(3).normal(0, 0.1, (6, 40)))
    halves = [mismatch_readings(rows_of(whole, rows)) for rows in (slice(0, 2), slice(2, 6))]
    merged, expected = merge_all(*halves), mismatch_readings(whole)
    assert merged.keys() == expected.keys()
    per_batch = {"mismatch/ess", "mismatch/pearson"}
    for name in merged.keys() - per_batch:
        assert merged[name] == expected[name], name


def test_every_name_is_in_the_vocabulary(core_batch):
    assert [name for name in mismatch_readings(core_batch) if metric_of(name) is None] == []

"""The words of keys, with and without separators."""

from __future__ import annotations

import pytest

from grpodoctor.runs.reading.key_words import is_heldout, pattern_of, reward_key_among

JOINED = {
    "gradnorm": "optimizer/grad_norm",
    "gradientnorm": "optimizer/grad_norm",
    "kldiv": "kl/reference/k3",
    "meanreward": "reward/mean",
    "avgreward": "reward/mean",
    "rewardmean": "reward/mean",
    "responselength": "length/mean",
    "maxlength": "length/max",
    "cliprate": "clip/any_rate",
    "clipfraction": "clip/any_rate",
    "learningrate": "optimizer/learning_rate",
    "policyloss": "optimizer/loss",
    "policyentropy": "entropy/mean",
    "steptime": "time/step",
}


@pytest.mark.parametrize("key", JOINED)
def test_a_name_without_separators_has_the_metric_of_its_words(key: str) -> None:
    for spelling in (key, key.upper(), f"actor/{key}"):
        pattern = pattern_of(spelling)
        assert pattern is not None, spelling
        assert pattern.metric == JOINED[key]


@pytest.mark.parametrize(
    "key",
    ["klloss", "entropyloss", "lossscale", "bestreward", "totaltokens", "throughput", "latency",
     "content", "temperature", "checkpoint", "gpumemory", "islands", "samples"],
)  # fmt: skip
def test_other_names_without_separators_have_none(key: str) -> None:
    assert pattern_of(key) is None


def test_an_evaluation_without_separators_is_held_out() -> None:
    assert is_heldout("evalaccuracy")
    assert is_heldout("valreward")
    assert not is_heldout("retrieval")
    assert reward_key_among({"valreward": 9, "meanreward": 9, "bestreward": 9}) == "meanreward"

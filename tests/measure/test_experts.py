import numpy as np
import pytest

from grpodoctor.errors import DataError
from grpodoctor.measure.experts import (
    ExpertBatch,
    churn_readings,
    expert_readings,
    replay_readings,
)
from grpodoctor.vocabulary.values import Mean, Rate, merge_all, scalar


def test_agrees_with_the_vectors(vectors):
    expected = vectors["experts"]
    before, after = np.array(expected["before"]), np.array(expected["after"])
    readings = churn_readings(before, after, between="engine")
    assert scalar(readings["experts/churn_engine"]) == expected["churn"]
    assert readings["experts/tokens_with_any_flip"].value == expected["any"]
    assert scalar(readings["experts/churn_engine/layer/0"]) == 0.25
    update = churn_readings(before, after, between="update")
    assert scalar(update["experts/churn_update"]) == expected["churn"]
    assert "experts/tokens_with_any_flip" not in update


def test_the_order_of_the_experts_does_not_matter():
    before = np.random.default_rng(0).permuted(np.tile(np.arange(8), (20, 3, 1)), axis=2)[..., :4]
    readings = churn_readings(before, before[..., ::-1], between="engine")
    assert scalar(readings["experts/churn_engine"]) == 0
    assert readings["experts/tokens_with_any_flip"] == Rate(0, 20)


def test_parts_merge_exactly_beyond_double_precision():
    rng = np.random.default_rng(1)
    before, after = (
        rng.permuted(np.tile(np.arange(9), (50, 2, 1)), axis=2)[..., :7] for _ in range(2)
    )
    whole = churn_readings(before, after, between="engine")
    parts = [
        churn_readings(before[p], after[p], between="engine") for p in np.split(np.arange(50), 5)
    ]
    merged = parts[0]
    for part in parts[1:]:
        merged = merge_all(merged, part)
    assert merged == whole


def test_routings_of_different_texts_are_refused():
    with pytest.raises(DataError, match="cannot be compared"):
        churn_readings(np.zeros((3, 2, 2), int), np.zeros((4, 2, 2), int), between="update")


def test_loads_entropies_and_margins_by_layer():
    batch = ExpertBatch(
        experts=4,
        used_NLK=np.array([[[0, 1], [0, 1]], [[0, 2], [2, 3]]]),
        entropy_NL=np.array([[0.1, 0.3], [0.2, 0.4]]),
        margin_NL=np.array([[1.0, 2.0], [3.0, 4.0]]),
        sampler_NLK=np.array([[[1, 0], [0, 3]], [[-1, -1], [-1, -1]]]),
    )
    readings = expert_readings(batch)
    assert readings["experts/load_max_over_mean/layer/0"] == Mean.of([2.0])
    assert readings["experts/load_max_over_mean/layer/1"] == Mean.of([1.0])
    assert readings["experts/load_max_over_mean"] == Mean.of([2.0, 1.0])
    assert scalar(readings["experts/router_entropy/layer/1"]) == pytest.approx(0.35)
    assert scalar(readings["experts/router_margin"]) == 2.5
    # The second token's experts were not told: one of the first token's four changed.
    assert scalar(readings["experts/churn_engine"]) == 0.25
    assert readings["experts/tokens_with_any_flip"] == Rate(1, 1)
    assert "experts/churn_update" not in readings


def test_no_tokens_give_no_readings():
    nothing = np.zeros((0, 2, 2), dtype=int)
    batch = ExpertBatch(
        experts=4, used_NLK=nothing, entropy_NL=np.zeros((0, 2)), margin_NL=np.zeros((0, 2))
    )
    assert expert_readings(batch) == {}


def test_a_replay_is_counted_by_layer():
    readings = replay_readings(np.array([4, 4]), np.array([3, 4]), np.array([3, 2]))
    assert readings["experts/replay_coverage"] == Rate(7, 8)
    assert readings["experts/replay_coverage/layer/0"] == Rate(3, 4)
    assert readings["experts/replay_agreement"] == Rate(5, 7)
    assert readings["experts/replay_agreement/layer/1"] == Rate(2, 4)

import numpy as np
import pytest

from grpodoctor.errors import DataError
from grpodoctor.measure.experts import churn_readings
from grpodoctor.vocabulary.values import Rate, merge_all, scalar


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


def test_parts_merge_exactly_even_where_a_share_has_no_double():
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

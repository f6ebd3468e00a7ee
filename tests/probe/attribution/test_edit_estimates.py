"""Generic edits are ranked by what they would do to a gap, to first order."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.search.edit_estimates import EditEstimates
from grpodoctor.probe.engines.first_order import (
    ARRAYS,
    EDITS,
    EstimatedEdit,
    Estimates,
    read_estimates,
)

TOKENS = 100
GAP = np.random.default_rng(0).normal(size=TOKENS) / 3


def estimates_of(*edits: tuple[EstimatedEdit, np.ndarray]) -> EditEstimates:
    listed, rows = zip(*edits, strict=True)
    at = np.arange(TOKENS)
    return EditEstimates(Estimates(listed, at, -np.ones(TOKENS), np.stack(rows)), GAP)


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=TOKENS) / 3


def edit(site: str, value: str = "from layer", name: str = "operation") -> EstimatedEdit:
    return EstimatedEdit(name, site, value, is_number=value == "")


def test_the_edit_with_the_gaps_effect_comes_first() -> None:
    true = edit("1:mlp#0:mul")
    found = estimates_of(
        *((edit(f"{n}:mlp#3:add"), noise(n)) for n in range(1, 30)), (true, GAP + 0.3 * noise(77))
    ).ranked()
    assert found[0].family.attribute == true.site
    assert found[0].explained > 0.7
    assert all(each.explained < 0.2 for each in found[1:])


def test_edits_whose_effect_is_far_too_small_or_opposite_are_left_out() -> None:
    found = estimates_of(
        (edit("0:a#0:mul"), GAP * 1e-3), (edit("0:b#0:mul"), -GAP), (edit("0:c#0:mul"), GAP * 0.7)
    ).ranked()
    assert [each.family.attribute for each in found] == ["0:c#0:mul"]


def test_of_edits_with_the_same_effect_one_is_tried() -> None:
    found = estimates_of(
        (edit("0:a#1:mul"), GAP), (edit("0:a/out", "negated", "site_change"), GAP * 1.0000001)
    ).ranked()
    assert [each.family.attribute for each in found] == ["0:a/out"]


def test_no_place_takes_all_tries() -> None:
    many = [(edit(f"0:a#{n}:mul"), GAP + 0.1 * noise(n)) for n in range(20)]
    found = estimates_of(*many, (edit("0:b#0:mul"), GAP + noise(50))).ranked()
    assert [each.family.attribute for each in found].index("0:b#0:mul") == 12


def test_a_factor_is_tried_at_its_estimate_and_at_a_usual_number_near_it() -> None:
    (found,) = estimates_of((edit("mlp/out", "", "site_scale"), -GAP / 0.9)).ranked()
    assert found.family.kind == "number"
    assert found.family.values == (0.1, 0.0)


def test_order_and_axes_are_tried_whatever_the_estimate_says() -> None:
    estimates = estimates_of(
        (edit("a#0:reshape", "axes"), -GAP), (edit("0:a#0:reshape", "axes"), -GAP),
        (edit("a#1:mul", "later silu of 0"), noise(1)), (edit("a#1:mul", "skipped"), noise(2)),
    )  # fmt: skip
    names = [(each.family.attribute, each.family.values) for each in estimates.structural()]
    assert names == [("a#0:reshape", ("axes",)), ("a#1:mul", ("later silu of 0",))]


def test_factors_by_layer_are_ranked_by_what_they_explain_together() -> None:
    one, two = noise(1), GAP - 0.5 * noise(1)
    estimates = estimates_of(
        (edit("0:k/out", "", "site_scale"), one), (edit("1:k/out", "", "site_scale"), two),
        (edit("0:v/out", "", "site_scale"), noise(3)),
        (edit("1:v/out", "", "site_scale"), noise(4)),
    )  # fmt: skip
    (share, site), (other, _) = estimates.by_layer()
    assert site == "k/out"
    assert share > 0.999 > 0.2 > other


def test_damaged_estimates_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no estimates"):
        read_estimates(tmp_path)
    at = np.arange(3)
    listed = [{"name": "operation", "attribute": "a#0:mul", "value": "axes", "kind": "choice"}]
    (tmp_path / EDITS).write_text(json.dumps(listed))
    np.savez(tmp_path / ARRAYS, token_N=at, logprob_N=at, entropy_N=at, effects_EN=np.ones((1, 3)))
    assert read_estimates(tmp_path).edits[0].site == "a#0:mul"
    np.savez(tmp_path / ARRAYS, token_N=at, logprob_N=at, entropy_N=at, effects_EN=np.ones((2, 3)))
    with pytest.raises(EngineError, match="other tokens"):
        read_estimates(tmp_path)
    places = np.array([0.0, 0.5, 1.0])
    np.savez(
        tmp_path / ARRAYS, token_N=places, logprob_N=at, entropy_N=at, effects_EN=np.ones((1, 3))
    )
    with pytest.raises(EngineError, match="no numbers of tokens"):
        read_estimates(tmp_path)

"""Edits of attention in families that add to the scores, or select keys, in ways of their own."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

import engine_transformers
from contract import InapplicableError, Processing, Sampling
from hf.what_if.attention import _refuse_scores

from tests.probe.plants.families import checkpoint, prompts


@pytest.mark.parametrize(
    "family",
    [
        "glm_moe_dsa",  # an indexer selects the keys
        pytest.param("doge", marks=pytest.mark.slow),  # finite numbers in the mask
        pytest.param("inkling", marks=pytest.mark.slow),  # a bias by position
        pytest.param("inkling2", marks=pytest.mark.slow),  # and a sink for each query
    ],
)
def test_edited_attention_is_the_familys_apart_from_the_edit(family: str, tmp_path: Path) -> None:
    engine = engine_transformers.load(str(checkpoint(tmp_path, family)), {"threads": 1})
    ids = [prompt["ids"] for prompt in prompts(2)]
    drawn = engine.sample(ids, Sampling(samples=1, max_tokens=24, ignore_end=True), ())

    def scores() -> np.ndarray:
        return np.concatenate([each.logprobs for each in engine.score(drawn, Processing(), ())])

    plain = scores()
    with engine.altered([("attention_scale", 1.0)]):
        same = scores()
    with engine.altered([("attention_scale", 1.3)]):
        scaled = scores()
    np.testing.assert_allclose(same, plain, atol=1e-4)
    assert np.abs(scaled - plain).max() > 0.05


def test_a_family_with_further_scores_is_refused() -> None:
    """An edit that leaves them out would differ from the model by more than the edit."""
    _refuse_scores({"dropout": 0.0, "position_ids": torch.zeros(2, 5), "mask": None})
    with pytest.raises(InapplicableError, match="score_bias"):
        _refuse_scores({"score_bias": torch.zeros(2, 4, 5, 5)})

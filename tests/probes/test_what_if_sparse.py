"""Edits of attention in families whose indexer selects the keys of each token."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

import engine_transformers
from contract import Processing, Sampling

from tests.probe.plants.families import checkpoint, prompts


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = checkpoint(tmp_path_factory.mktemp("sparse"), "glm_moe_dsa")
    return engine_transformers.load(str(folder), {"threads": 1})


def test_edited_attention_sees_the_selected_keys_alone(engine: Any) -> None:
    """The family masks the other keys for the kernels that it knows, and for no further one."""
    ids = [prompt["ids"] for prompt in prompts(3)]
    drawn = engine.sample(ids, Sampling(samples=1, max_tokens=24, ignore_end=True), ())

    def scores() -> np.ndarray:
        return np.concatenate([each.logprobs for each in engine.score(drawn, Processing(), ())])

    plain = scores()
    with engine.altered([("attention_scale", 1.0)]):
        same = scores()
    with engine.altered([("kv_cache", "int4")]):
        rounded = scores()
    np.testing.assert_allclose(same, plain, atol=1e-4)
    assert np.abs(rounded - plain).max() > 0.05

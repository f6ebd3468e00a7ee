"""Edits of logits share one pass of the trunk, and nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.probe.plants.families import checkpoint
from tests.probes.test_what_if_layers import loaded, responses, scores

LOGITS: list[tuple[str, Any]] = [
    ("logit_bias", [[5, 1.0]]), ("logit_soft_cap", 2.0), ("vocabulary_part", ["1/2", 0.5]),
    ("repetition_penalty", 1.3), ("uniform_share", 0.1), ("vocabulary_shards", 2),
]  # fmt: skip


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root: Path = tmp_path_factory.mktemp("trunk")
    return loaded(checkpoint(root / "llama", "llama"))


@pytest.fixture
def passes(engine: Any) -> Any:
    """The passes of the first layer so far."""
    counted: list[int] = []
    layer = engine._model.model.layers[0]
    handle = layer.register_forward_hook(lambda *_: counted.append(1))
    engine._trunks.clear()
    yield counted
    handle.remove()


def scored(engine: Any, rows: Any, *edits: tuple[str, Any]) -> np.ndarray:
    with engine.altered(list(edits)):
        return scores(engine, rows)


def test_edits_of_logits_need_one_pass_of_the_trunk(engine: Any, passes: list[int]) -> None:
    rows = responses(engine)
    passes.clear()
    kept = [scored(engine, rows, edit) for edit in LOGITS]
    assert len(passes) == 1
    for edit, values in zip(LOGITS, kept, strict=True):
        engine._trunks.clear()
        np.testing.assert_array_equal(scored(engine, rows, edit), values)
    assert len({values.tobytes() for values in kept}) == len(LOGITS)


def test_other_edits_have_their_own_trunk(engine: Any, passes: list[int]) -> None:
    rows = responses(engine)
    bias, scale = LOGITS[0], ("attention_scale", 2.0)
    both = scored(engine, rows, scale, bias)
    alone = scored(engine, rows, bias)
    moved = scored(engine, rows, ("position_start", 3), bias)
    assert not np.array_equal(both, alone)
    passes.clear()
    np.testing.assert_array_equal(scored(engine, rows, scale, bias), both)
    np.testing.assert_array_equal(scored(engine, rows, bias), alone)
    np.testing.assert_array_equal(scored(engine, rows, ("position_start", 3), bias), moved)
    assert not passes
    other = responses(engine, 3)
    assert scored(engine, other, bias).size < alone.size


def test_an_engine_without_edits_computes_each_time(engine: Any, passes: list[int]) -> None:
    """One that differs from run to run would otherwise look as if it did not."""
    rows = responses(engine)
    passes.clear()
    for _ in range(2):
        scores(engine, rows)
        scored(engine, rows, ("attention_scale", 2.0))
    assert len(passes) == 4

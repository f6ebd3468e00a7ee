"""Edits of the experts that routers choose."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from contract import InapplicableError
from hf.routers import Routers
from hf.what_if.router_choice import weights_at

from tests.probe.plants import fifth_draw_faults, planted_engine  # noqa: F401  # its faults
from tests.probe.plants.families import checkpoint
from tests.probes.test_what_if_layers import loaded, scores
from tests.probes.test_what_if_updates import rows_of


def with_fault(model: Path, fault: str, rows: Any) -> Any:
    faulty = planted_engine.load(str(model), {"threads": 1, "faults": fault})
    try:
        return scores(faulty, rows)
    finally:
        faulty.close()


def test_experts_of_the_token_before_equal_the_fault(tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "mixtral", "mixtral")
    engine = loaded(model)
    rows = rows_of(engine)
    plain, wanted = scores(engine, rows), with_fault(model, "replay_shifted:1", rows)
    with engine.altered([("experts_shifted", "token:1")]):
        assert np.abs(wanted - scores(engine, rows)).max() < 1e-4
    assert np.abs(wanted - plain).max() > 0.02
    with engine.altered([("experts_shifted", "layer:1")]):
        assert np.abs(plain - scores(engine, rows)).max() > 0.02
    assert np.array_equal(scores(engine, rows), plain)
    for value in ("token:0.5", "layer:-1", "row:1"):
        with pytest.raises(InapplicableError), engine.altered([("experts_shifted", value)]):
            scores(engine, rows)


def test_a_moved_bias_equals_the_fault(tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "dots1", "dots1")
    engine = loaded(model)
    rows = rows_of(engine)
    plain, wanted = scores(engine, rows), with_fault(model, "correction_moved:0.1", rows)
    generator = torch.Generator().manual_seed(7)
    biases = [each.e_score_correction_bias for each in Routers(engine._model).modules]
    added = [
        (0.1 * (torch.randint(0, 2, bias.shape, generator=generator) * 2 - 1)).tolist()
        for bias in biases
    ]
    with engine.altered([("router_bias", added)]):
        assert np.abs(wanted - scores(engine, rows)).max() < 1e-4
    assert np.abs(wanted - plain).max() > 0.02
    assert np.array_equal(scores(engine, rows), plain)
    for value in (added[:1], [each[:-1] for each in added]):
        with pytest.raises(InapplicableError), engine.altered([("router_bias", value)]):
            pass


@pytest.mark.parametrize("is_normalized", [True, False])
def test_weights_of_other_experts(is_normalized: bool) -> None:
    logits = torch.randn(50, 6, generator=torch.Generator().manual_seed(1))
    shares = logits.sigmoid()
    own, other = (logits.mul(sign).topk(2).indices for sign in (1, -1))

    def weights(ids: torch.Tensor) -> torch.Tensor:
        chosen = shares.gather(-1, ids)
        return 2.5 * (chosen / chosen.sum(-1, keepdim=True) if is_normalized else chosen)

    assert torch.allclose(weights_at(logits, weights(own), own, other), weights(other), rtol=1e-4)

"""Edits of fused projections, rows of the vocabulary, rotary tables and inputs of routers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from hf.what_if import weight_layout

from tests.probe.plants.families import checkpoint
from tests.probe.plants.set_checks import mostly_slow
from tests.probes.test_what_if_layers import loaded, offered_with_effect_of, responses, scores

CASES: list[tuple[str, str, tuple[str, Any]]] = [
    ("cwm", "columns_of_first_rank", ("weight_layout", ["gate and up", "of the first of 2"])),
    ("dots1", "gate_up_blocks:16", ("weight_layout", ["gate_up_proj", "in blocks of 16"])),
    ("glm4", "unrotated_from:32", ("rotation_limit", 32)),
    ("seed_oss", "unrotated_from:16", ("rotation_limit", 16)),
    ("internlm3", "rows_averaged:56", ("mean_rows", ["embeddings and head", 56])),
    ("gemma4", "router_norm_twice", ("router_input", "normed by pre_feedforward_layernorm_2")),
    ("qwen3", "rows_averaged:32", ("mean_rows", ["embeddings and head", 32])),
]


@pytest.mark.parametrize(("family", "fault", "edit"), mostly_slow(CASES, 2))
def test_an_edit_equals_a_fault_written_without_it(
    tmp_path: Path, family: str, fault: str, edit: tuple[str, Any]
) -> None:
    offered = offered_with_effect_of(tmp_path / family, family, fault, edit)
    values = [value for each in offered if each["name"] == edit[0] for value in each["values"]]
    assert edit[1] in values


def test_routers_read_what_a_norm_reads(tmp_path: Path) -> None:
    engine = loaded(checkpoint(tmp_path / "qwen3_moe", "qwen3_moe"))
    rows = responses(engine)
    plain = scores(engine, rows)
    with engine.altered([("router_input", "before post_attention_layernorm")]):
        edited = scores(engine, rows)
    for layer in engine._model.model.layers:
        norm, gate = layer.post_attention_layernorm.forward, layer.mlp.gate.forward
        kept: dict[str, Any] = {}

        def noting(hidden: Any, norm: Any = norm, kept: Any = kept) -> Any:
            kept["hidden"] = hidden
            return norm(hidden)

        def routing(hidden: Any, gate: Any = gate, kept: Any = kept) -> Any:
            return gate(kept["hidden"].view_as(hidden))

        layer.post_attention_layernorm.forward, layer.mlp.gate.forward = noting, routing
    assert np.abs(scores(engine, rows) - edited).max() < 1e-5
    assert np.abs(edited - plain).max() > 0.02


class Layer(nn.Module):
    """A block with separate projections that engines fuse."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(2, 8, bias=False) for _ in range(2))


class Model(nn.Module):
    """Layers, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer()])


@pytest.mark.parametrize(
    ("form", "rows"),
    [
        ("in turn", [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15]),
        ("halves", [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15]),
        ("in blocks of 4", [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15]),
        ("from blocks of 2", [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15]),
        ("of the first of 4", [0, 1] * 4 + [8, 9] * 4),
        ("split among 2", [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15]),
    ],
)
def test_orders_of_separate_projections(form: str, rows: list[int]) -> None:
    model = Model()
    layer: Any = model.layers[0]
    both = torch.cat([layer.gate_proj.weight, layer.up_proj.weight]).detach().clone()
    with weight_layout.weight_layout(model, [weight_layout.GATE_AND_UP, form]):
        read = torch.cat([layer.gate_proj.weight, layer.up_proj.weight])
        assert torch.equal(read, both[rows])
    assert torch.equal(torch.cat([layer.gate_proj.weight, layer.up_proj.weight]), both)

"""The plants of `rewritten_kernels` load and do what they state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.probe.plants import computing, rewritten_kernels
from tests.probe.plants.catalogue import Plant, unseen
from tests.probe.plants.issue_bugs import _modules_with
from tests.probe.plants.set_checks import (
    check_fault_changes_its_engine_alone,
    check_gap_matters_unless_healthy,
    group_sizes,
    mostly_slow,
)

PLANTS = [each for each in unseen() if each.group.startswith("rewritten-kernels")]
COMPUTED = (
    ("gemma", "activation_on_product", ""),
    ("lfm2", "conv_flipped", ""),
    ("mamba", "inputs_outputs_exchanged", ""),
    ("flex_olmo", "expert_overwritten", ""),
    ("starcoder2", "heads_merged", ""),
    ("arcee", "keys_rotated_twice", ""),
    ("seed_oss", "kv_of_layer_before", ""),
    ("ministral", "norm_statistics", ""),
    ("helium", "final_norm_twice", ""),
    ("stablelm", "self_masked", ""),
    ("qwen2_moe", "shared_gate_linear", ""),
    ("glm", "residual_clamped", "2"),
)
"""Faults of the forward pass: family, name and value."""


def test_the_set_has_the_stated_size_and_each_kind_is_worded() -> None:
    assert group_sizes(PLANTS) == {
        "rewritten-kernels-healthy": 1,
        "rewritten-kernels": 10,
        "rewritten-kernels-double": 2,
    }
    assert len({each.family for each in PLANTS}) >= 8
    assert {name for _, name, _ in COMPUTED} == set(rewritten_kernels.EXPERT)


@pytest.mark.parametrize(
    ("family", "fault", "value"),
    mostly_slow(COMPUTED, 4),
)
def test_a_fault_changes_the_values_of_its_engine_alone(
    load: Any, family: str, fault: str, value: str
) -> None:
    check_fault_changes_its_engine_alone(load, family, fault, value)


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.key)
def test_a_fault_is_a_gap_that_matters_and_a_healthy_pair_is_none(
    root: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    check_gap_matters_unless_healthy(root, monkeypatch, plant)


def test_a_masked_token_attends_to_earlier_tokens_only_and_the_first_to_itself(load: Any) -> None:
    engine = load("stablelm")
    computing.FAULTS["self_masked"](engine, "")
    ids = torch.randint(3, 64, (1, 6), generator=torch.Generator().manual_seed(1))
    attended = engine._model(ids, output_attentions=True).attentions
    for layer in attended:
        expected = torch.ones(6, 6).tril(-1).bool()
        expected[0, 0] = True
        assert torch.equal(layer[0] > 0, expected.expand_as(layer[0]))


def test_a_token_keeps_the_output_of_its_last_expert_alone(load: Any) -> None:
    engine = load("flex_olmo")
    experts = _modules_with(engine, "gate_up_proj")[0]
    x = torch.randn(2, 64, generator=torch.Generator().manual_seed(1))
    ids, weights = torch.tensor([[0, 2], [3, 1]]), torch.tensor([[0.6, 0.4], [0.7, 0.3]])
    last = experts(x, torch.tensor([[2], [3]]), torch.tensor([[0.4], [0.7]]))
    computing.FAULTS["expert_overwritten"](engine, "")
    assert torch.allclose(experts.forward(x, ids, weights), last, atol=1e-6)

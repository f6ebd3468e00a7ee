"""The plants of `upstream_bugs` load and do what they state."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.probe.plants import computing, reporting, upstream_bugs
from tests.probe.plants.catalogue import Plant, unseen
from tests.probe.plants.set_checks import (
    check_fault_changes_its_engine_alone,
    group_sizes,
    kinds_of,
    mostly_slow,
    probability_gap,
)
from tests.probe.plants.upstream_bug_families import UPSTREAM_BUG_FAMILIES

PLANTS = [each for each in unseen() if each.group.startswith("upstream-bugs")]
COMPUTED = (
    ("minimax_m3", "swiglu_limit", "10000"),
    ("mamba2", "skip_lost", ""),
    ("kolibri1", "norms_exchanged", "post_self_attn_layernorm,post_attention_layernorm"),
    ("qwen3_5", "activation_fp8", ""),
    ("deepseek_v4", "sinkhorn", "1"),
    ("zaya", "embedding_rows_lost", "56,64"),
    ("axk1", "interleave_off", ""),
    ("hy_v4", "experts_exchanged", "1,0,2"),
    ("flint", "token_masked", "7"),
)
"""Faults of the forward pass that need no generation: family, name and value."""


def test_the_set_has_the_stated_size_and_each_kind_has_a_source() -> None:
    assert group_sizes(PLANTS) == {
        "upstream-bugs": 16,
        "upstream-bugs-double": 4,
        "upstream-bugs-healthy": 3,
    }
    assert {each.family for each in PLANTS} == set(UPSTREAM_BUG_FAMILIES)
    kinds = kinds_of(PLANTS)
    assert kinds - {"hidden_temperature"} == set(upstream_bugs.SOURCES)
    assert set(upstream_bugs.EXPERT) < kinds


@pytest.mark.parametrize(
    ("family", "fault", "value"),
    mostly_slow(COMPUTED, 2),
)
def test_a_fault_changes_the_values_of_its_engine_alone(
    load: Any, family: str, fault: str, value: str
) -> None:
    check_fault_changes_its_engine_alone(load, family, fault, value)


def test_a_hole_in_the_cache_is_attended_and_moves_later_positions(load: Any) -> None:
    ids = torch.randint(3, 64, (2, 12), generator=torch.Generator().manual_seed(2))
    runs = []
    for planted in (False, True):
        engine = load("jetmoe")
        if planted:
            computing.FAULTS["cache_hole"](engine, "")
        first, cache = engine._split.next_logits(ids, torch.ones_like(ids), None)
        later, cache = engine._split.next_logits(
            ids[:, :1], torch.ones(2, 13, dtype=ids.dtype), cache
        )
        assert cache.get_seq_length() == 13 + planted
        runs.append((first, later))
    assert torch.equal(runs[0][0], runs[1][0])
    assert (runs[0][1] - runs[1][1]).abs().max() > 0.02


def test_a_prompt_in_two_parts_is_healthy_but_for_the_adapter(load: Any, root: Path) -> None:
    from tests.probe.plants.families import adapter

    ids = torch.randint(3, 64, (2, 12), generator=torch.Generator().manual_seed(3))
    engine = load("lfm3")
    adapter(root / "adapter", root / "lfm3", alpha=4)
    before = {name: each.clone() for name, each in engine._model.named_parameters()}
    plain, _ = engine._split.next_logits(ids, torch.ones_like(ids), None)
    computing.FAULTS["prefix_without_adapter"](engine, str(root / "adapter"))
    other, _ = engine._split.next_logits(ids, torch.ones_like(ids), None)
    assert (other - plain).abs().max() > 0.05
    for name, weight in engine._model.named_parameters():
        assert torch.equal(weight, before[name])


def test_a_stale_penalty_knows_the_prompt_only() -> None:
    row = torch.tensor([1.0, -1.0, 2.0, 3.0])
    changed = upstream_bugs.changed_row(row.clone(), [0, 1, 2], [2], {"penalty_stale": "2"})
    assert changed.tolist() == [0.5, -2.0, 2.0, 3.0]


def test_normalizers_of_shards() -> None:
    values = reporting.CHANGES["normaliser_twice"](np.zeros(2), "2", 0)
    assert values.tolist() == pytest.approx([-math.log(2)] * 2)
    read = upstream_bugs.read_prompts({"separator_lost": "1"}, [[5, 6, 7], [8, 9]])
    assert read == [[5, 7], [8]]


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.key)
def test_a_fault_is_a_gap_that_matters_and_a_healthy_pair_is_none(
    root: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    """Without attribution."""
    mean = probability_gap(plant, root, monkeypatch)
    if plant.causes:
        assert mean > 0.01
    else:
        assert mean < (0.004 if plant.options.get("dtype") else 1e-5)

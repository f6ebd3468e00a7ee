"""The plants of `issue_bugs` load and do what they state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.probe.plants import computing, issue_bugs
from tests.probe.plants.catalogue import Plant, unseen
from tests.probe.plants.issue_bug_families import ISSUE_BUG_FAMILIES
from tests.probe.plants.set_checks import group_sizes, kinds_of, probability_gap

PLANTS = [each for each in unseen() if each.group.startswith("issue-bugs")]
COMPUTED = (
    ("glm_moe_dsa", "indexer_halves", ""),
    ("olmo_hybrid", "negative_lost", ""),
    ("kimi_linear", "decay_heads", "2"),
    ("hy_v3", "router_softmax", ""),
    ("granitemoe_swa", "scales_transposed", "16"),
    ("granitemoe_swa", "keys_permuted", "4"),
    ("qwen3_5_moe", "linear_split", ""),
    ("falcon_mamba", "steps_unnormed", ""),
)
"""Faults of the forward pass that need no generation: family, name and value."""
LOSSLESS = ("keys_permuted", "linear_split", "decay_heads")
"""Faults that only move values."""


def logits(engine: Any) -> Tensor:
    ids = torch.randint(3, 64, (2, 24), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        out: Tensor = engine._model(ids).logits
    return out


def test_the_set_has_the_stated_size_and_each_kind_has_a_source() -> None:
    assert group_sizes(PLANTS) == {
        "issue-bugs": 20,
        "issue-bugs-double": 6,
        "issue-bugs-healthy": 4,
    }
    assert {each.family for each in PLANTS} == set(ISSUE_BUG_FAMILIES)
    kinds = kinds_of(PLANTS)
    also = {"raw", "hidden_temperature", "hidden_top_p", "begun", "quantised"}
    assert kinds - also == set(issue_bugs.SOURCES)
    assert set(issue_bugs.EXPERT) < kinds


@pytest.mark.parametrize(("family", "fault", "value"), COMPUTED)
def test_a_fault_changes_the_values_of_its_engine_alone(
    load: Any, family: str, fault: str, value: str
) -> None:
    plain = logits(load(family))
    engine = load(family)
    before = _sorted_weights(engine)
    computing.FAULTS[fault](engine, value)
    assert (logits(engine) - plain).abs().max() > 0.05
    if fault in LOSSLESS:
        assert torch.equal(_sorted_weights(engine), before)
    computing.restore()
    assert torch.equal(logits(load(family)), plain)


def _sorted_weights(engine: Any) -> Tensor:
    values: Tensor = torch.cat([each.detach().flatten() for each in engine._model.parameters()])
    return values.sort().values


def test_only_square_weights_have_transposed_scales(load: Any) -> None:
    engine = load("granitemoe_swa")
    before = {name: each.clone() for name, each in engine._model.named_parameters()}
    computing.FAULTS["scales_transposed"](engine, "16")
    after = dict(engine._model.named_parameters())

    def moved(part: str) -> float:
        name = next(each for each in before if part in each)
        return float(((after[name] - before[name]).abs() / before[name].abs()).median())

    assert moved("k_proj.weight") < 0.04  # fp8 has three bits behind the point
    assert moved("q_proj.weight") > 0.04


def test_a_fault_of_the_cache_leaves_the_prompt_s_values(load: Any) -> None:
    """Only what is generated after it changes."""
    ids = torch.randint(3, 64, (6, 12), generator=torch.Generator().manual_seed(2))
    seen = torch.ones_like(ids)
    ids[:, 0] += -ids.sum(1) % 3  # each prompt is chosen
    for fault, value in (("page_foreign", "3,4"), ("slot_lost", "4")):
        runs = []
        for planted in (False, True):
            engine = load("bitnet")
            if planted:
                computing.FAULTS[fault](engine, value)
            first, cache = engine._split.next_logits(ids, seen, None)
            wide = torch.ones(6, 13, dtype=seen.dtype)
            _, cache = engine._split.next_logits(ids[:, :1], wide, cache)
            wide = torch.ones(6, 14, dtype=seen.dtype)
            later, _ = engine._split.next_logits(ids[:, :1], wide, cache)
            runs.append((first, later))
        assert torch.equal(runs[0][0], runs[1][0])
        assert (runs[0][1] - runs[1][1]).abs().max() > 0.05, fault


def test_a_prompt_in_two_chunks_is_healthy_but_for_the_lost_state(load: Any) -> None:
    ids = torch.randint(3, 64, (2, 16), generator=torch.Generator().manual_seed(3))
    engine = load("olmo_hybrid")
    plain, _ = engine._split.next_logits(ids, torch.ones_like(ids), None)
    _, cache = engine._split.next_logits(ids[:, :10], torch.ones_like(ids[:, :10]), None)
    chunked, _ = engine._split.next_logits(ids[:, 10:], torch.ones_like(ids), cache)
    assert torch.allclose(plain, chunked, atol=1e-3)
    computing.FAULTS["state_chunk"](engine, "6")
    lost, _ = engine._split.next_logits(ids, torch.ones_like(ids), None)
    assert (lost - plain).abs().max() > 0.05


def test_a_draft_after_a_repeated_token_gains_probability() -> None:
    row = torch.zeros(5)
    drafted = issue_bugs.changed_row(row.clone(), [4, 2, 3, 1, 2], {"ngram_drafts": ""})
    chance = drafted.softmax(-1)
    assert chance[3] == pytest.approx(0.2 + 0.8 * 0.2)
    assert float(chance.sum()) == pytest.approx(1)
    assert torch.equal(issue_bugs.changed_row(row, [4, 2, 3], {"ngram_drafts": ""}), row)


def test_a_mask_concerns_some_requests_only() -> None:
    masked = issue_bugs.changed_row(torch.zeros(8), [4, 5], {"mask_misrouted": "2"})
    assert masked.isinf().tolist() == [n % 4 == 3 for n in range(8)]
    assert not issue_bugs.changed_row(torch.zeros(8), [5, 4], {"mask_misrouted": "2"}).any()


def test_some_tokens_are_spelled_differently_and_special_ones_are_not() -> None:
    assert [issue_bugs._spelled(token, 10) for token in (0, 1, 9, 10, 20, 21)] == [
        0, 1, 9, 11, 21, 21,
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.key)
def test_a_fault_is_a_gap_that_matters_and_a_healthy_pair_is_none(
    root: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    """Without attribution; a sampler that reports its model's values has none in them."""
    mean = probability_gap(plant, root, monkeypatch)
    if plant.faults.startswith("raw"):
        assert mean < 1e-5
    elif plant.causes:
        assert mean > 0.01
    else:
        assert mean < (0.004 if plant.options.get("dtype") else 1e-5)

"""The plants of `natural_draw` load and do what they state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.probe.plants import computing
from tests.probe.plants.catalogue import Plant, unseen
from tests.probe.plants.families import checkpoint
from tests.probe.plants.issue_bugs import _modules_with
from tests.probe.plants.set_checks import (
    check_fault_changes_its_engine_alone,
    check_gap_matters_unless_healthy,
    group_sizes,
    hidden,
    mostly_slow,
)

PLANTS = [each for each in unseen() if each.group.startswith("natural-draw")]
COMPUTED = (
    ("iquestcoder", "rope_default", "10000"),
    ("apertus_llama3", "rope_default", "10000"),
    ("dots1", "router_correction_lost", ""),
    ("glm4_moe", "weights_not_normalised", ""),
    ("hunyuan", "four_bits", ""),
    ("phi3", "qkv_by_group", ""),
    ("cwm", "kv_heads_in_turn", ""),
    ("gpt_oss", "sinks_ignored", ""),
    ("xglm", "training_mode", ""),
    ("qwen2", "without_qkv_bias", ""),
    ("glm4", "rope_full", ""),
    ("granite_tied", "residual_one", ""),
    ("phimoe", "expert_pair_exchanged", "1"),
    ("vaultgemma", "final_norm_plus_one", ""),
)
"""Faults of the forward pass: family, name and value."""


def test_the_set_has_the_stated_size() -> None:
    assert group_sizes(PLANTS) == {
        "natural-draw-healthy": 5,
        "natural-draw": 20,
        "natural-draw-double": 6,
    }
    assert len({each.family for each in PLANTS}) >= 20


@pytest.mark.parametrize(("family", "fault", "value"), mostly_slow(COMPUTED, 4))
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


def test_a_query_head_reads_the_key_head_of_its_number_modulo_the_count(load: Any) -> None:
    """Exchanging the middle query heads of four, with their outputs, undoes the fault."""
    engine, healthy = load("cwm"), load("cwm")
    computing.FAULTS["kv_heads_in_turn"](engine, "")
    size = healthy._model.config.head_dim
    order = torch.arange(4 * size).view(4, size)[[0, 2, 1, 3]].flatten()
    with torch.no_grad():
        for attention in _modules_with(engine, "q_proj"):
            attention.q_proj.weight.copy_(attention.q_proj.weight[order].clone())
            attention.o_proj.weight.copy_(attention.o_proj.weight[:, order].clone())
    assert torch.allclose(hidden(engine), hidden(healthy), atol=1e-5)


def test_an_old_prefix_changes_what_follows_a_prompt_but_not_whole_sequences(
    load: Any, root: Path
) -> None:
    engine = load("arcee")
    ids = torch.randint(3, 64, (2, 12), generator=torch.Generator().manual_seed(1))
    seen, plain = torch.ones_like(ids), hidden(engine)
    expected, _ = engine._split.next_logits(ids, seen, None)
    stale = checkpoint(root / "arcee-stale", "arcee", changed=0.15)
    computing.FAULTS["old_prefix"](engine, str(stale))
    logits, _ = engine._split.next_logits(ids, seen, None)
    assert (logits - expected).abs().max() > 0.05
    assert torch.equal(hidden(engine), plain)


def test_positions_count_the_padding_of_shorter_prompts_alone(load: Any) -> None:
    from contract import Processing, Response

    engine, healthy = load("opt"), load("opt")
    computing.FAULTS["positions_from_padding"](engine, "")
    given = [Response([5, 9, 11, 6], [8, 9], []), Response([5, 9], [8, 12], [])]
    long, short = engine.score(given, Processing(), ())
    plain_long, plain_short = healthy.score(given, Processing(), ())
    assert long.logprobs == pytest.approx(plain_long.logprobs, abs=1e-4)
    assert short.logprobs != pytest.approx(plain_short.logprobs, abs=0.05)

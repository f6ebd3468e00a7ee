"""The plants of `fifth_draw` load and do what they state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.probe.plants import computing, fifth_draw_faults
from tests.probe.plants.catalogue import Plant, unseen
from tests.probe.plants.families import checkpoint
from tests.probe.plants.set_checks import (
    alone,
    check_each_of_two_matters_alone,
    check_fault_changes_its_engine_alone,
    check_gap_matters_unless_healthy,
    doubles,
    group_sizes,
    hidden,
    mostly_slow,
)

PLANTS = [each for each in unseen() if each.group.startswith("fifth-draw")]
COMPUTED = (
    ("glm4", "kv_unscaled", "1.4"),
    ("dots1", "correction_moved", "0.1"),
    ("mixtral", "replay_shifted", "1"),
    ("aria", "shared_experts_times", "2"),
    ("deepseek_v2", "latent_fp8", "e5m2"),
)
"""New faults of the trunk: family, name and value."""


def test_the_set_has_the_stated_size() -> None:
    assert group_sizes(PLANTS) == {
        "fifth-draw-a": 8,
        "fifth-draw-b": 8,
        "fifth-draw-a-double": 4,
        "fifth-draw-b-double": 4,
        "fifth-draw-a-healthy": 2,
        "fifth-draw-b-healthy": 2,
    }
    assert len({each.key for each in PLANTS}) == len(PLANTS)
    faulty = [each.family for each in PLANTS if each.causes]
    assert len(set(faulty)) == len(faulty) == 24


@pytest.mark.parametrize(("family", "fault", "value"), mostly_slow(COMPUTED, 4))
def test_a_fault_changes_the_values_of_its_engine_alone(
    load: Any, family: str, fault: str, value: str
) -> None:
    check_fault_changes_its_engine_alone(load, family, fault, value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant", [each for each in PLANTS if "raw" not in each.faults], ids=lambda plant: plant.key
)
def test_a_fault_is_a_gap_that_matters_and_a_healthy_pair_is_none(
    root: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    check_gap_matters_unless_healthy(root, monkeypatch, plant)


@pytest.mark.slow
@pytest.mark.parametrize("plant", doubles(PLANTS), ids=lambda plant: plant.key)
def test_each_of_two_faults_matters_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    check_each_of_two_matters_alone(root, monkeypatch, alone(plant))


def test_drafts_that_the_likeliest_token_judges_change_the_distribution() -> None:
    rows = 2.6 * torch.randn(50, 64, generator=torch.Generator().manual_seed(1))
    settings = {"drafts_by_likeliest": "1.5"}
    changed = torch.stack([fifth_draw_faults.changed_row(row.clone(), settings) for row in rows])
    plain = rows.softmax(-1)
    assert torch.allclose(changed.exp().sum(-1), torch.ones(50), atol=1e-4)
    assert (changed.exp() - plain).abs().sum(-1).mean() / 2 > 0.1
    assert torch.equal(fifth_draw_faults.changed_row(rows[0], {}), rows[0])


def test_prompts_and_values_have_the_stated_change(load: Any) -> None:
    """`load` is needed for the path to the contract."""
    from contract import Response

    read = fifth_draw_faults.read_prompts
    assert read({"spans_exchanged": "1,2"}, [[1, 2, 3, 4, 5, 6]]) == [[1, 4, 5, 2, 3, 6]]
    given = [Response([5], [6, 7, 8, 9], [-1.0, -2.0, -3.0, -4.0], 0, 0)]
    (certain,) = fifth_draw_faults.reported(given, {"drafts_certain": "3"})
    assert certain.logprobs == [-1.0, 0.0, 0.0, -4.0]


def test_a_sparse_sync_sends_the_largest_changes(load: Any, root: Path) -> None:
    engine, new = load("smollm3"), load("smollm3")
    stale = checkpoint(root / "smollm3-stale", "smollm3", changed=0.15)
    computing.FAULTS["sparse_sync"](engine, f"0.3,{stale}")
    name = "model.layers.1.mlp.up_proj.weight"
    given, sent = (each._model.get_parameter(name) for each in (engine, new))
    equal = torch.isclose(given, sent, atol=1e-6)
    assert equal.float().mean() == pytest.approx(0.3, abs=0.02)
    assert (given - sent)[~equal].abs().max() < 0.3 * sent.std()


def test_a_head_in_fp8_changes_the_logits_by_its_rounding(load: Any) -> None:
    engine, healthy = load("stablelm"), load("stablelm")
    computing.FAULTS["head_fp8"](engine, "")
    states = hidden(healthy).flatten(0, 1)
    plain, changed = (each._split.logits(states) for each in (healthy, engine))
    assert 0.005 < (changed - plain).std() / plain.std() < 0.1

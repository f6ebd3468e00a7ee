"""The plants of `fifth_draw` load and do what they state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.probe.plants import computing, fifth_draw_faults
from tests.probe.plants.catalogue import unseen
from tests.probe.plants.families import checkpoint
from tests.probe.plants.set_checks import hidden

PLANTS = [each for each in unseen() if each.group.startswith("fifth-draw")]


def test_no_family_has_two_faults() -> None:
    faulty = [each.family for each in PLANTS if each.causes]
    assert len(set(faulty)) == len(faulty) == 24


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

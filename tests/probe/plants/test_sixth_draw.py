"""The sixth natural draw: by chance, no family twice, and faults that do what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.probe.plants import computing, sixth_draw_faults
from tests.probe.plants.catalogue import Plant, unseen
from tests.probe.plants.families import checkpoint
from tests.probe.plants.set_checks import hidden, probability_gap
from tests.probe.plants.sixth_draw_kinds import KINDS

PLANTS = [each for each in unseen() if each.group.startswith("sixth-draw")]


def test_no_family_occurs_twice() -> None:
    families = [each.family for each in PLANTS]
    assert len(set(families)) == len(families) == 24


def test_every_fault_is_of_a_kind_and_no_single_one_twice() -> None:
    def kind(fault: str) -> str:
        return fault.partition(":")[0]

    named = {kind(each.fault) for each in KINDS}
    singles = [kind(each.faults) for each in PLANTS if len(each.causes) == 1]
    doubles = {kind(each) for plant in PLANTS for each in plant.faults.split("+") if plant.causes}
    assert len(set(singles)) == len(singles) == 14
    assert doubles <= named


def test_a_presence_penalty_can_count_the_prompt() -> None:
    rows = sixth_draw_faults.changed_row(torch.zeros(8), [1, 1, 5], {"presence_all": "0.5"})
    assert rows.tolist() == [0, -0.5, 0, 0, 0, -0.5, 0, 0]


def test_every_second_prompt_is_begun_again() -> None:
    read = sixth_draw_faults.read_prompts
    assert read({"begun_every": "2"}, [[3], [4], [5]]) == [[2, 3], [4], [2, 5]]


def test_values_are_reported_in_the_stated_order(load: Any) -> None:
    """`load` is needed for the path to the contract."""
    from contract import Response

    given = [Response([9, 9], [1] * 6, [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0], 0, 0)]

    def after(**faults: str) -> list[float]:
        (reported,) = sixth_draw_faults.reported(given, faults)
        (scored,) = sixth_draw_faults.scored([reported], faults)
        values: list[float] = scored.logprobs
        return values

    assert after(resumed_twice="3,1") == [-1, -2, -3, -3, -4, -5]
    assert after(stream_restarts="4") == [-1, -2, -3, -4, -1, -2]
    assert after(first_only="") == [-1, 0, 0, 0, 0, 0]
    # Positions of a rank: 0, 1, 6, 7, and of the other one: 2 to 5; two tokens are the prompt's.
    assert after(zigzag_order="2") == [-5, -6, -1, -2, -3, -4]


def test_embeddings_can_be_old_without_the_head(load: Any, root: Path) -> None:
    engine, new = load("qwen3"), load("qwen3")
    stale = checkpoint(root / "qwen3-stale", "qwen3", changed=0.15)
    computing.FAULTS["embedding_old"](engine, str(stale))
    heads = [each._model.get_output_embeddings().weight for each in (engine, new)]
    tables = [each._model.get_input_embeddings().weight for each in (engine, new)]
    assert torch.equal(*heads)
    assert (tables[0] - tables[1]).abs().max() > 0.05


def test_an_adapter_is_summed_over_ranks_in_one_module_alone(load: Any) -> None:
    engine = load("qwen2")
    layer = engine._model.base_model.layers[0].self_attn
    for module in (layer.q_proj, layer.v_proj):
        module.register_forward_hook(lambda _m, _x, out: out + 1)
    computing.FAULTS["adapter_part_times"](engine, "v_proj,2")
    states = torch.zeros(1, layer.q_proj.in_features)
    assert torch.allclose(layer.q_proj(states) - layer.q_proj.bias, torch.ones(1))
    assert torch.allclose(layer.v_proj(states) - layer.v_proj.bias, torch.full((1,), 2.0))


def test_the_window_begins_above_the_first_layer(load: Any) -> None:
    engine = load("olmo3")
    computing.FAULTS["window_above"](engine, "1")
    assert engine._model.config.layer_types[0] == "full_attention"
    assert engine._model.config.layer_types[2] == "sliding_attention"
    assert hidden(engine).isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["replica_old:STALE", "resumed_after:9,STALE"])
def test_kinds_of_weight_updates_that_were_not_drawn_matter(
    root: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    plant = Plant("llama", fault, (frozenset({"mixed-weights"}),), "sixth-draw")
    assert probability_gap(plant, root, monkeypatch) > 0.01

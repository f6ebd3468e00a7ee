"""The plants of `fourth_draw` load and do what they state."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.probe.plants import computing, fourth_draw_faults
from tests.probe.plants.catalogue import unseen
from tests.probe.plants.fourth_draw_kinds import GROUPS, KINDS, NEW

PLANTS = [each for each in unseen() if each.group.startswith("fourth-draw")]


def test_a_fifth_of_the_families_is_new() -> None:
    assert sum(each.family in NEW for each in PLANTS) >= len(PLANTS) / 5


def test_kinds_have_the_weights_of_their_groups() -> None:
    assert all(each.families and each.names and each.weight > 0 for each in KINDS)
    assert sum(each.weight for each in KINDS) == pytest.approx(108)
    assert sum(weight for weight, _ in GROUPS.values()) == 108


def test_typical_sampling_leaves_out_the_likeliest_token_of_a_flat_row() -> None:
    row = torch.tensor([0.3, *[0.02] * 35]).log()
    kept = fourth_draw_faults.changed_row(row.clone(), {"typical_p": "0.3"})
    assert kept[0] == -torch.inf
    assert kept[1:].isfinite().any()
    assert kept.isinf().sum() > 1


def test_the_temperature_follows_the_entropy() -> None:
    flat, sharp = torch.zeros(8), torch.tensor([20.0, *[0.0] * 7])
    settings = {"dynamic_temperature": "0.4"}
    assert torch.equal(fourth_draw_faults.changed_row(flat, settings), flat)
    assert fourth_draw_faults.changed_row(sharp, settings)[0] == pytest.approx(20 / 0.6, rel=0.01)


def test_prompts_are_read_with_the_stated_change(load: Any) -> None:
    """`load` is needed for the path to the contract."""
    from contract import Response

    prompts = [list(range(10, 20))]
    read = fourth_draw_faults.read_prompts
    assert read({"right_kept": "4"}, prompts) == [[10, 11, 12, 13]]
    assert read({"tools_lost": "3"}, prompts) == [[10, 11, 15, 16, 17, 18, 19]]
    (dated,) = read({"date_line": "2"}, prompts)
    assert [at for at, (a, b) in enumerate(zip(dated, prompts[0], strict=True)) if a != b] == [2, 3]
    responses = [Response(prompts[0], [5, 6, 7], [-1.0, -2.0, -3.0], 0, 0)]
    assert fourth_draw_faults.read(responses, {"learner_begun": ""})[0].prompt_ids[0] == 2
    (cut,) = fourth_draw_faults.scored(responses, {"cut_at": "12"})
    assert cut.logprobs == [-1.0, -2.0, 0.0]


def test_updates_of_an_adapter_are_those_of_another_layer(load: Any) -> None:
    engine = load("qwen2")
    layers = engine._model.model.layers
    for number, layer in enumerate(layers):
        for module in (layer.self_attn.q_proj, layer.self_attn.v_proj):
            module.register_forward_hook(lambda _m, _x, out, by=number: out + by)
    x = torch.randn(2, 64)
    with torch.no_grad():
        before = [layer.self_attn.q_proj(x) for layer in layers]
        computing.FAULTS["adapter_layers_shifted"](engine, "1")
        changes = [
            (layer.self_attn.q_proj(x) - plain).mean().round().item()
            for layer, plain in zip(layers, before, strict=True)
        ]
    assert changes == [2.0, -1.0, -1.0]

"""The plants of `second_draw` load and do what they state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tests.probe.plants import computing, second_draw_faults
from tests.probe.plants.second_draw_kinds import KINDS
from tests.probe.plants.set_checks import hidden


def test_every_kind_has_families_names_and_a_weight() -> None:
    assert all(each.families and each.names and each.weight > 0 for each in KINDS)
    assert all("{x}" in each.fault for each in KINDS if each.size)


def test_a_plain_rotation_has_the_base_of_the_checkpoint_and_no_scaling(load: Any) -> None:
    engine = load("llama_scaled")
    (rotary,) = {m for _, m in computing._modules(engine, "rotary")}
    scaled = rotary.inv_freq.clone()
    computing.FAULTS["scaling_ignored"](engine, "")
    count = len(scaled)
    assert torch.allclose(rotary.inv_freq, 10000.0 ** -(torch.arange(count) / count))
    assert not torch.allclose(rotary.inv_freq, scaled)


def test_a_whole_bias_of_each_expert_is_added_once(load: Any) -> None:
    """With weights of 1, experts' biases are whole in a healthy engine, too."""
    engine, healthy = load("gpt_oss"), load("gpt_oss")
    computing.FAULTS["expert_bias_whole"](engine, "")
    x, chosen = torch.randn(5, 64), torch.tensor([[0, 1]]).expand(5, 2)
    layer = "model.layers.0.mlp.experts"
    faulty, plain = (each._model.get_submodule(layer) for each in (engine, healthy))
    ones, halves = torch.ones(5, 2), torch.full((5, 2), 0.5)
    with torch.no_grad():
        assert torch.allclose(faulty(x, chosen, ones), plain(x, chosen, ones), atol=1e-6)
        more = faulty(x, chosen, halves) - plain(x, chosen, halves)
        assert torch.allclose(more, (plain.down_proj_bias[:2].sum(0) / 2).expand(5, 64), atol=1e-5)


def test_an_adapter_counts_the_stated_number_of_times(load: Any) -> None:
    engine = load("llama_tied")
    layer = engine._model.model.layers[0].self_attn.q_proj
    x = torch.randn(3, 64)
    with torch.no_grad():
        plain = layer(x)
        layer.register_forward_hook(lambda _m, inputs, output: output + inputs[0])
        computing.FAULTS["adapter_times"](engine, "4")
        assert torch.allclose(layer(x), plain + 4 * x, atol=1e-5)


def test_products_in_fp8_differ_by_the_rounding_of_both_operands(load: Any) -> None:
    engine, healthy = load("llama_tied"), load("llama_tied")
    computing.FAULTS["fp8_products"](engine, "32")
    difference: Tensor = hidden(engine) - hidden(healthy)
    assert 0.005 < difference.std() / hidden(healthy).std() < 0.3


def _read(prompts: Sequence[Sequence[int]], **faults: str) -> list[list[int]]:
    from contract import Response

    given = [Response(list(ids), [5], [], number, 0) for number, ids in enumerate(prompts)]
    return [list(each.prompt_ids) for each in second_draw_faults.read(given, faults)]


def test_prompts_are_read_with_the_stated_change(load: Any) -> None:
    """`load` is needed for the path to the contract."""
    prompt = [2, *range(10, 20)]
    assert _read([prompt], span_lost="3") == [[2, *range(13, 20)]]
    (merged,) = _read([prompt], retokenised="1")
    assert len(merged) == len(prompt) - 1
    assert sum(len(each) < len(prompt) for each in _read([prompt] * 100, retokenised="0.4")) == 40
    assert second_draw_faults.read_prompts({"system_prompt": "2"}, [prompt])[0][2:] == prompt

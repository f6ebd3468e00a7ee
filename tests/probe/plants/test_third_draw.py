"""The plants of `third_draw` load and do what they state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tests.probe.plants import computing, third_draw_serving
from tests.probe.plants.catalogue import unseen
from tests.probe.plants.third_draw_kinds import GROUPS, KINDS

PLANTS = [each for each in unseen() if each.group.startswith("third-draw")]


def test_kinds_have_the_weights_of_their_groups() -> None:
    assert all(each.families and each.names and each.weight > 0 for each in KINDS)
    assert sum(each.weight for each in KINDS) == pytest.approx(108)
    assert sum(weight for weight, _ in GROUPS.values()) == 108


def test_the_older_checkpoint_is_given_in_half_of_the_pairs_with_old_weights() -> None:
    old = [each for each in PLANTS if "STALE" in f"{each.faults} {each.options}"]
    assert sum(each.stale for each in PLANTS) == sum(each.stale for each in old) == len(old) / 2


def test_scales_of_a_place_are_those_of_another_group(load: Any) -> None:
    """Codes have seven steps to either side; their scales are only the wrong ones."""
    engine, healthy = load("qwen2"), load("qwen2")
    computing.FAULTS["groups_in_order"](engine, "16")
    layer = "model.layers.1.mlp.up_proj"
    given, plain = (each._model.get_submodule(layer).weight for each in (engine, healthy))
    ratio = (given / plain).median()
    assert 0.7 < ratio < 1.4
    assert 0.1 < (given - plain).std() / plain.std() < 0.6


def test_old_updates_of_an_adapter_are_those_of_every_call(load: Any) -> None:
    engine = load("qwen2")
    layer = engine._model.model.layers[0].self_attn.q_proj
    x = torch.randn(3, 64)
    with torch.no_grad():
        layer.register_forward_hook(lambda _m, inputs, output: output + inputs[0])
        adapted = layer(x)
        computing.FAULTS["adapter_old"](engine, "1")
        assert torch.equal(layer(x), layer(x))
        assert not torch.allclose(layer(x), adapted)
        assert torch.allclose(layer(2 * x) - layer(x), layer(x) - layer(0 * x), atol=1e-4)


def _responses(lengths: Sequence[int], samples: int = 2) -> list[Any]:
    from contract import Response

    return [
        Response([2, *range(10, 19)], [5] * size, [-float(n)] * size, n // samples, n % samples)
        for n, size in enumerate(lengths)
    ]


def test_columns_of_rows_are_moved_as_stated(load: Any) -> None:
    """`load` is needed for the path to the contract."""
    rotated = third_draw_serving.reported(_responses([2, 3, 1, 1]), {"samples_rotated": ""})
    assert [each.logprobs for each in rotated] == [[-1, -1], [0, 0, 0], [-3], [-2]]
    by_length = third_draw_serving.reported(_responses([2, 3]), {"rows_by_length": ""})
    assert [each.logprobs for each in by_length] == [[-1, -1], [0, 0, 0]]
    (spanned,) = third_draw_serving.reported(_responses([6])[:1], {"tool_span": "2"})
    assert len(spanned.logprobs) == 6


def test_prompts_are_read_with_the_stated_change(load: Any) -> None:
    given = _responses([1, 1, 1, 1])

    def read(**faults: str) -> list[Any]:
        return [each.prompt_ids for each in third_draw_serving.read(given, faults)]

    assert read(left_kept="3")[0] == [16, 17, 18]
    assert read(prompt_ended="")[0][-1] == third_draw_serving.END
    assert len(read(thinking_stripped="")[0]) == 7
    prompts = [[7, 8, 9, 10]]
    assert third_draw_serving.read_prompts({"header_lost": "2"}, prompts) == [[7, 8]]
    assert third_draw_serving.read_prompts({"thinking_opened": "2"}, prompts)[0][:4] == prompts[0]

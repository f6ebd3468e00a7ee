"""Updates that are added to other tensors: the moves that are tried, and their names."""

from __future__ import annotations

from itertools import product

from grpodoctor.probe.attribution.causes.weights.weight_update import moves_of
from grpodoctor.probe.attribution.edit_causes.computed_causes import cause_of
from grpodoctor.probe.attribution.edit_causes.update_causes import moved_in_words
from grpodoctor.probe.attribution.wording.edit_words import described


def names(layers: int) -> list[str]:
    tails = ("self_attn.q_proj.weight", "mlp.up_proj.weight", "mlp.gate_proj.weight")
    inner = [f"model.layers.{n}.{tail}" for n, tail in product(range(layers), tails)]
    return ["model.embed_tokens.weight", *inner, "lm_head.weight"]


def test_siblings_of_a_layer_are_paired() -> None:
    moves = moves_of(names(2))
    everywhere = [move for move in moves if ":" not in move]
    assert everywhere == [
        "gate_proj>up_proj", "up_proj>gate_proj", "gate_proj>>up_proj", "up_proj>>gate_proj",
        "gate_proj<>up_proj", "next", "previous",
    ]  # fmt: skip
    assert len(moves) == 7 + 2 * 5


def test_a_deep_model_is_tried_as_a_whole() -> None:
    assert len(moves_of(names(100))) == 7
    assert moves_of(["lm_head.weight"]) == []


def test_moves_in_words() -> None:
    assert moved_in_words("next") == "of each layer added to the next layer"
    assert moved_in_words("up>gate") == "of up added to gate"
    assert moved_in_words("3:up>>gate") == "of up of layer 3 added to gate in place of its own"
    assert moved_in_words("up<>gate") == "of up and gate exchanged"


def test_an_update_next_to_another_cause_keeps_its_name() -> None:
    """A pair of changes is named by its edits, which name no cause of weights themselves."""
    scaled = ("update_scale", '["mlp|/runs/step-10", 2.0]')
    assert cause_of(scaled).id == "weight-update"
    assert described(scaled) == "the update since step-10 in MLPs times 2"
    moved = ("update_moved", '["/runs/step-10", "up>gate"]')
    assert cause_of(moved).id == "swapped-weights"
    assert described(moved) == "the update since step-10 of up added to gate"

"""Updates of weights that are added to another tensor, or with a factor."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from contract import InapplicableError, Response, Sampling
from hf.what_if.partial_updates import coarse_update, partial_update
from hf.what_if.tensor_parts import with_parts

from tests.probe.plants import (
    fifth_draw_faults,  # noqa: F401  # its faults
    planted_engine,
    third_draw_weights,  # noqa: F401  # its faults
)
from tests.probe.plants.families import checkpoint, prompts
from tests.probes.test_what_if_layers import loaded, scores

UP, GATE = "mlp.up_proj.weight", "mlp.gate_proj.weight"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("updates")


@pytest.fixture(scope="module")
def folders(root: Path) -> tuple[Path, Path]:
    return checkpoint(root / "now", "olmo"), checkpoint(root / "older", "olmo", changed=0.15)


def rows_of(engine: Any) -> list[Response]:
    ids = [prompt["ids"] for prompt in prompts(4)]
    rows: list[Response] = engine.sample(ids, Sampling(samples=1, max_tokens=16), ())
    return rows


def test_a_misplaced_update_equals_the_fault(folders: tuple[Path, Path]) -> None:
    now, older = folders
    engine = loaded(now)
    rows = rows_of(engine)
    plain = scores(engine, rows)
    faults = f"update_misplaced:{older}"
    faulty = planted_engine.load(str(now), {"threads": 1, "faults": faults})
    try:
        wanted = scores(faulty, rows)
    finally:
        faulty.close()
    with engine.altered([("update_moved", [str(older), "up_proj>gate_proj"])]):
        assert np.abs(wanted - scores(engine, rows)).max() < 2e-4
    assert np.abs(wanted - plain).max() > 0.02
    assert np.array_equal(scores(engine, rows), plain)


def test_what_a_rank_keeps_equals_the_fault(folders: tuple[Path, Path]) -> None:
    """Half of the outputs of most projections, and half of the inputs of the last ones."""
    now, older = folders
    engine = loaded(now)
    rows = rows_of(engine)
    plain = scores(engine, rows)
    faulty = planted_engine.load(str(now), {"threads": 1, "faults": f"rank_from:{older}"})
    try:
        wanted = scores(faulty, rows)
    finally:
        faulty.close()
    names = [name for name, _ in engine._model.named_parameters() if "layers" in name]
    parts = [f"{name}[rank 2/2]" for name in names]
    with engine.altered([("other_weights", {"from": str(older), "only": "^$", "parts": parts})]):
        assert np.abs(wanted - scores(engine, rows)).max() < 2e-4
    assert np.abs(wanted - plain).max() > 0.02
    assert np.array_equal(scores(engine, rows), plain)


@pytest.mark.parametrize(
    ("name", "shape", "at", "places"),
    [
        ("mlp.gate_up_proj.weight", (8, 3), 0, [2, 3, 6, 7]),
        ("self_attn.qkv_proj.weight", (8, 3), 0, [2, 3, 5, 7]),
        ("mlp.experts.gate_up_proj", (2, 4, 6), 1, [1, 3]),
        ("mlp.experts.down_proj", (2, 6, 4), 2, [2, 3]),
        ("self_attn.o_proj.weight", (3, 4), 1, [2, 3]),
        ("self_attn.o_proj.bias", (4,), 0, []),
        ("input_layernorm.weight", (4,), 0, []),
    ],
)
def test_each_part_of_a_fused_tensor_is_divided_by_itself(
    name: str, shape: tuple[int, ...], at: int, places: list[int]
) -> None:
    text = SimpleNamespace(hidden_size=6, num_attention_heads=2, num_key_value_heads=1)
    model: Any = nn.ModuleDict(
        {
            "mlp": nn.ModuleDict({"gate_up_proj": nn.Identity()}),
            "self_attn": nn.ModuleDict({"qkv_proj": nn.Identity(), "o_proj": nn.Identity()}),
        }
    )
    model.config = SimpleNamespace(get_text_config=lambda: text)
    own, other = {name: torch.zeros(shape)}, {name: torch.ones(shape)}
    if places:
        taken = with_parts(model, own, other, [f"{name}[rank 2/2]"])[name].movedim(at, 0)
        assert [n for n, row in enumerate(taken) if row.all()] == places
        assert taken.sum() == len(places) * taken[0].numel()
    else:
        with pytest.raises(InapplicableError, match="no tensor"):
            with_parts(model, own, other, [f"{name}[rank 2/2]"])


def test_moves_of_layers_and_factors(folders: tuple[Path, Path]) -> None:
    now, older = folders
    engine, before = loaded(now), loaded(older)
    rows = rows_of(engine)
    found = {}
    for move in ("next", "previous", "1:up_proj<>gate_proj", "1:up_proj>>gate_proj"):
        with engine.altered([("update_moved", [str(older), move])]):
            found[move] = [
                {name: each.get_parameter(name).detach().clone() for name in (UP, GATE)}
                for each in engine._model.model.layers
            ]
    new, old = (each._model.model.layers for each in (engine, before))

    def update(layer: int, name: str) -> torch.Tensor:
        return (new[layer].get_parameter(name) - old[layer].get_parameter(name)).detach()

    def of(layer: int, name: str) -> torch.Tensor:
        return old[layer].get_parameter(name).detach()

    def close(one: torch.Tensor, other: torch.Tensor) -> bool:
        return bool(torch.allclose(one, other, atol=1e-6))

    assert close(found["next"][1][UP], of(1, UP) + update(0, UP))
    assert close(found["next"][0][UP], of(0, UP) + update(0, UP))  # the first keeps its own
    assert close(found["previous"][1][UP], of(1, UP) + update(2, UP))
    assert close(found["1:up_proj<>gate_proj"][1][UP], of(1, UP) + update(1, GATE))
    assert close(found["1:up_proj<>gate_proj"][1][GATE], of(1, GATE) + update(1, UP))
    assert close(found["1:up_proj<>gate_proj"][0][GATE], of(0, GATE) + update(0, GATE))
    assert close(found["1:up_proj>>gate_proj"][1][GATE], of(1, GATE) + update(1, UP))
    assert close(found["1:up_proj>>gate_proj"][1][UP], of(1, UP))
    whole = scores(before, rows)
    with engine.altered([("update_scale", [f"|{older}", 0.0])]):
        assert np.abs(scores(engine, rows) - whole).max() < 2e-4
    twice = of(2, UP) + 2 * update(2, UP)
    embeddings = engine._model.model.embed_tokens.weight.detach().clone()
    for part, is_changed in (("layers", True), ("mlp", True), ("attention", False)):
        with engine.altered([("update_scale", [f"{part}|{older}", 2.0])]):
            now_up = engine._model.model.layers[2].get_parameter(UP)
            assert close(now_up, twice) == is_changed
            assert torch.equal(engine._model.model.embed_tokens.weight, embeddings)
    with (
        pytest.raises(InapplicableError),
        engine.altered([("update_moved", [str(older), "q_proj>gate_proj"])]),
    ):
        pass


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_sparse_update_equals_the_fault(folders: tuple[Path, Path], share: float) -> None:
    now, older = folders
    engine = loaded(now)
    rows = rows_of(engine)
    plain = scores(engine, rows)
    faulty = planted_engine.load(str(now), {"threads": 1, "faults": f"sparse_sync:{share},{older}"})
    try:
        wanted = scores(faulty, rows)
    finally:
        faulty.close()
    with engine.altered([("update_part", [f"largest:quantile|{older}", share])]):
        assert np.abs(wanted - scores(engine, rows)).max() < 1e-4
    assert np.abs(wanted - plain).max() > 0.02
    assert np.array_equal(scores(engine, rows), plain)


OWN = {"a": torch.tensor([[1.0, -4.0], [2.0, 0.5]]), "b": torch.tensor([8.0, 0.1])}
OLDER = {"a": torch.zeros(2, 2), "b": torch.tensor([6.0, 0.05])}
ARRIVED = {
    ("largest", 0.5): ([[0, 1], [1, 0]], [1, 0]),
    ("smallest", 0.5): ([[1, 0], [0, 1]], [0, 1]),
    ("largest of all", 0.5): ([[0, 1], [1, 0]], [1, 0]),
    ("largest of all", 0.2): ([[0, 1], [0, 0]], [0, 0]),
    ("relative", 0.7): ([[1, 1], [1, 1]], [0, 0]),
    ("relative", 0.8): ([[1, 1], [1, 1]], [0, 1]),
    ("rows", 0.5): ([[1, 1], [0, 0]], [1, 0]),
    ("first", 0.5): ([[1, 1], [0, 0]], [1, 0]),
    ("last", 0.25): ([[0, 0], [0, 1]], [0, 0]),
    ("largest:up", 0.3): ([[0, 1], [1, 0]], [1, 0]),
    ("largest:down", 0.4): ([[0, 1], [0, 0]], [1, 0]),
}


@pytest.mark.parametrize("part", ARRIVED)
def test_which_elements_arrive(part: tuple[str, float]) -> None:
    found = partial_update(OWN, OLDER, *part)
    for name, wanted in zip(OWN, ARRIVED[part], strict=True):
        at = torch.tensor(wanted, dtype=torch.bool)
        assert torch.equal(found[name], torch.where(at, OWN[name], OLDER[name]))


def test_random_elements_and_unknown_parts() -> None:
    own, older = {"a": torch.ones(100, 100)}, {"a": torch.zeros(100, 100)}
    one, same, other = (partial_update(own, older, f"random:{n}", 0.3)["a"] for n in (1, 1, 2))
    assert float(one.mean()) == pytest.approx(0.3, abs=0.02)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    for how, share in (("middle", 0.5), ("largest", 1.2)):
        with pytest.raises(InapplicableError):
            partial_update(own, older, how, share)


def test_an_update_in_a_coarse_format() -> None:
    signs = coarse_update(OWN, OLDER, "sign")
    assert torch.allclose(signs["a"], torch.tensor([[1.0, -1.0], [1.0, 1.0]]) * 1.875)
    half = coarse_update(OWN, OLDER, "bfloat16")
    assert torch.allclose(half["b"], OWN["b"], rtol=0.01)
    with pytest.raises(InapplicableError):
        coarse_update(OWN, OLDER, "int3")

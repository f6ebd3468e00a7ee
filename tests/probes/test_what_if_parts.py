"""What-if edits of number formats in one kind of part, against formats applied by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

import engine_transformers
from contract import Processing, Response, Sampling

from tests.probe.plants.families import checkpoint, prompts


def loaded(root: Path, family: str) -> Any:
    folder = checkpoint(root / family, family)
    return engine_transformers.load(str(folder), {"threads": 1})


def scored(engine: Any, rows: list[Response]) -> np.ndarray:
    return np.concatenate([each.logprobs for each in engine.score(rows, Processing(), ())])


def edited(engine: Any, rows: list[Response], edit: tuple[str, Any]) -> np.ndarray:
    with engine.altered([edit]):
        return scored(engine, rows)


def drawn(engine: Any) -> list[Response]:
    ids = [prompt["ids"] for prompt in prompts(3)]
    rows: list[Response] = engine.sample(ids, Sampling(samples=1, max_tokens=16), ())
    return rows


def _in_fp8(values: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
    scale = largest / 448.0
    return (values / scale).to(torch.float8_e4m3fn).float() * scale


def test_the_head_alone_is_multiplied_in_fp8(tmp_path: Path) -> None:
    """Also where it shares its weights with the embeddings, which keep theirs."""
    engine = loaded(tmp_path, "llama_tied")
    rows = drawn(engine)
    plain_N = scored(engine, rows)
    edited_N = edited(engine, rows, ("part_products", ["output head", "fp8/tensor"]))
    head = engine._model.get_output_embeddings()
    weight = head.weight.detach()

    def in_fp8(_module: Any, inputs: tuple[torch.Tensor, ...], _output: torch.Tensor) -> Any:
        read = _in_fp8(inputs[0], inputs[0].abs().amax(-1, keepdim=True))
        return read @ _in_fp8(weight, weight.abs().amax()).T

    handle = head.register_forward_hook(in_fp8)
    expected_N = scored(engine, rows)
    handle.remove()
    assert edited_N == pytest.approx(expected_N, abs=1e-5)
    assert np.abs(edited_N - plain_N).max() > 1e-3
    assert np.array_equal(scored(engine, rows), plain_N)


def test_compressed_keys_and_values_are_cached_in_fp8(tmp_path: Path) -> None:
    engine = loaded(tmp_path, "deepseek_v3")
    rows = drawn(engine)
    edited_N = edited(engine, rows, ("latent_cache", "fp8_e5m2"))
    norms = [m for name, m in engine._model.named_modules() if name.endswith("kv_a_layernorm")]
    handles = [
        norm.register_forward_hook(lambda _m, _x, out: out.to(torch.float8_e5m2).to(out))
        for norm in norms
    ]
    expected_N = scored(engine, rows)
    for handle in handles:
        handle.remove()
    assert norms
    assert edited_N == pytest.approx(expected_N, abs=1e-6)
    assert np.abs(edited_N - scored(engine, rows)).max() > 1e-3


@pytest.mark.parametrize(
    ("part", "word"), [("attention", "self_attn"), ("MLPs", "mlp"), ("embeddings", "embed")]
)
def test_the_weights_of_one_kind_of_part_are_rounded(tmp_path: Path, part: str, word: str) -> None:
    engine = loaded(tmp_path, "llama")
    before = {name: weight.detach().clone() for name, weight in engine._model.named_parameters()}
    with engine.altered([("part_rounding", [part, "int4"])]):
        changed = {
            name
            for name, weight in engine._model.named_parameters()
            if not torch.equal(weight, before[name])
        }
    assert changed == {name for name, w in before.items() if word in name and w.ndim > 1}
    after = dict(engine._model.named_parameters())
    assert all(torch.equal(after[name], weight) for name, weight in before.items())


def test_each_kind_of_part_that_a_model_has_is_listed(tmp_path: Path) -> None:
    listed = {
        family: {
            (each["name"], value[0] if each["name"] != "latent_cache" else "")
            for each in loaded(tmp_path, family).what_ifs()
            if each["name"] in ("part_rounding", "part_products", "latent_cache")
            for value in each["values"]
        }
        for family in ("llama", "deepseek_v3")
    }
    kinds = {"output head", "attention", "MLPs"}
    assert listed["llama"] == {
        *(("part_products", kind) for kind in kinds),
        *(("part_rounding", kind) for kind in kinds | {"embeddings"}),
    }
    assert listed["deepseek_v3"] - listed["llama"] == {("latent_cache", "")}

"""What the log-probabilities of a model do under changes at its places."""

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
from hf.localisation.places import places_of

from tests.probe.plants.families import checkpoint, prompts


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sensitivity")


def engine_of(root: Path, family: str) -> tuple[Any, list[Response]]:
    engine = engine_transformers.load(str(checkpoint(root / family, family)), {"threads": 1})
    ids = [prompt["ids"] for prompt in prompts(4)]
    rows = engine.sample(ids, Sampling(samples=1, max_tokens=10, ignore_end=True), ())
    return engine, rows


FAMILIES = ["llama", "gemma2", pytest.param("gpt_neox", marks=pytest.mark.slow)]
FAMILIES += [pytest.param(each, marks=pytest.mark.slow) for each in ("mixtral", "lfm2", "bloom")]


@pytest.mark.parametrize("family", FAMILIES)
def test_values_are_those_of_scoring_and_gradients_leave_no_trace(root: Path, family: str) -> None:
    engine, rows = engine_of(root, family)
    before = np.concatenate([r.logprobs for r in engine.score(rows, Processing(0.7), ())])
    arrays = engine.sensitivities(rows, Processing(0.7), 20)
    np.testing.assert_allclose(arrays["logprob_N"], before[arrays["token_N"]], atol=1e-5)
    assert arrays["token_N"].size == 20
    assert all(np.isfinite(values).all() for values in arrays.values())
    places = {name.removeprefix("features/") for name in arrays if name.startswith("features/")}
    assert {"embedding", "head"} < places
    assert len([p for p in places if "." in p and "/" not in p]) >= 6
    after = np.concatenate([r.logprobs for r in engine.score(rows, Processing(0.7), ())])
    np.testing.assert_array_equal(after, before)
    assert not engine._split.gradients


def test_features_predict_which_tokens_a_change_moves(root: Path) -> None:
    """Random changes of an MLP's weights move tokens by as much as its features say."""
    torch.manual_seed(0)
    engine, rows = engine_of(root, "llama")
    arrays = engine.sensitivities(rows, Processing(), 24)
    at, base = arrays["token_N"], arrays["logprob_N"]
    weights = list(engine._model.model.layers[1].mlp.parameters())
    before = [weight.detach().clone() for weight in weights]
    moved = []
    for _ in range(60):
        with torch.no_grad():
            for weight, old in zip(weights, before, strict=True):
                weight.copy_(old + 0.01 * old.std() * torch.randn_like(old))
        scored = engine.score(rows, Processing(), ())
        moved.append(np.concatenate([r.logprobs for r in scored])[at] - base)
    observed_N = np.log(np.mean(np.square(moved), axis=0))

    def likeness(place: str) -> float:
        predicted_N = np.log(np.square(np.float64(arrays[f"features/{place}"])).sum(axis=1))
        return float(np.corrcoef(predicted_N, observed_N)[0, 1])

    own = likeness("1.mlp")
    assert own > 0.97
    assert own > max(likeness(place) for place in ("0.self_attn", "0.mlp", "head", "embedding"))


def test_a_norm_belongs_to_the_block_that_it_serves(root: Path) -> None:
    engine, _ = engine_of(root, "gemma2")
    model = engine._model
    places = {p.name: p for p in places_of(model, lambda: model(torch.tensor([[3, 4, 5]])))}
    around = {"0.input_layernorm", "0.post_attention_layernorm"}
    assert around == set(places["0.self_attn"].norms)
    feeding = {"0.pre_feedforward_layernorm", "0.post_feedforward_layernorm"}
    assert feeding == set(places["0.mlp"].norms)
    assert set(places["head"].norms) == {"model.norm"}

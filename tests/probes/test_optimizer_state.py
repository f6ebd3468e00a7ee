"""The weights before the last update, and files that are refused."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from contract import InapplicableError
from hf.what_if import optimizer_state
from hf.what_if.optimizer_state import last_updates

Groups = Callable[[nn.Module], list[dict[str, Any]]]
STEPS = 3


def model_of(tied: bool = False) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=tied,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def by_norms(model: nn.Module) -> list[dict[str, Any]]:
    """The groups of transformers: norms and biases do not decay."""
    named = list(model.named_parameters())
    return [
        {"params": [w for n, w in named if "norm" not in n], "weight_decay": 0.1},
        {"params": [w for n, w in named if "norm" in n], "weight_decay": 0.0},
    ]


def by_biases(model: nn.Module) -> list[dict[str, Any]]:
    """The groups of earlier transformers, where norms of a model's own class decay."""
    return [{"params": list(model.parameters()), "weight_decay": 0.1}, {"params": []}]


def one_group(model: nn.Module) -> list[dict[str, Any]]:
    return [{"params": list(model.parameters()), "weight_decay": 0.1}]


def trained(
    folder: Path, groups: Groups, model: nn.Module, *, rate: float = 1e-2, **options: Any
) -> tuple[dict[str, Tensor], Path]:
    """Update a model a few times; its weights before the last update, and the state's file."""
    optimizer = torch.optim.AdamW(groups(model), lr=rate, **options)
    before: dict[str, Tensor] = {}
    for step in range(STEPS):
        before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        ids = torch.arange(8)[None] + step
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    path = folder / "optimizer.pt"
    torch.save(optimizer.state_dict(), path)
    return before, path


def changed(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = torch.load(path, weights_only=True)
    change(content)
    torch.save(content, path)


def assert_undone(model: nn.Module, before: dict[str, Tensor], path: Path) -> None:
    found = last_updates(model, path)
    assert found.steps == STEPS
    assert found.tensors.keys() == before.keys()
    for name, weight in model.named_parameters():
        moved = float((weight - before[name]).detach().abs().max())
        error = float((weight + found.tensors[name] - before[name]).detach().abs().max())
        assert error < 1e-3 * moved, name


@pytest.mark.parametrize("groups", [by_norms, by_biases, one_group])
@pytest.mark.parametrize("tied", [False, True])
def test_the_last_update_is_undone(tmp_path: Path, groups: Groups, tied: bool) -> None:
    model = model_of(tied)
    before, path = trained(tmp_path, groups, model)
    assert_undone(model, before, path)


def test_the_rate_of_the_last_update(tmp_path: Path) -> None:
    """A schedule sets the rate of the next update before the state is saved."""
    model = model_of()
    before, path = trained(tmp_path, by_norms, model)

    def ended(content: dict[str, Any]) -> None:
        for group in content["param_groups"]:
            group["lr"], group["initial_lr"] = 0.0, 0.5

    changed(path, ended)
    log = [{"step": STEPS - 1, "learning_rate": 0.3}, {"step": STEPS, "learning_rate": 1e-2}]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    assert_undone(model, before, path)
    for text in ("[", "[1]", '{"log_history": [1]}', '{"log_history": 7}'):
        (tmp_path / "trainer_state.json").write_text(text)
        last_updates(model, path)


def test_names_in_the_file_are_used(tmp_path: Path) -> None:
    model = model_of()

    def named(model: nn.Module) -> list[Any]:
        return [{"params": list(model.named_parameters())[::-1], "weight_decay": 0.1}]

    before, path = trained(tmp_path, named, model)
    assert_undone(model, before, path)


def refusal(model: nn.Module, path: Path) -> str:
    with pytest.raises(InapplicableError) as error:
        last_updates(model, path)
    text = str(error.value)
    assert len(text) < 250
    assert "\n" not in text
    return text


def test_another_models_state_is_refused(tmp_path: Path) -> None:
    _, path = trained(tmp_path, by_norms, model_of())
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=3,
        num_attention_heads=2,
    )  # fmt: skip
    assert "which tensor is which" in refusal(LlamaForCausalLM(config), path)


def test_an_unknown_order_is_refused(tmp_path: Path) -> None:
    """Reversed parameters of the same number do not fit their shapes."""
    model = model_of()

    def backwards(model: nn.Module) -> list[dict[str, Any]]:
        return [{"params": list(model.parameters())[::-1]}]

    _, path = trained(tmp_path, backwards, model)
    assert "which tensor is which" in refusal(model, path)


def test_two_orders_that_fit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of()
    _, path = trained(tmp_path, one_group, model)
    names = [name for name, _ in model.named_parameters()]
    first, second = (names.index(f"model.layers.{n}.mlp.up_proj.weight") for n in (0, 1))
    other = list(names)
    other[first], other[second] = names[second], names[first]
    monkeypatch.setattr(optimizer_state, "_orders", lambda *_: iter([[names], [other]]))
    assert "several orders" in refusal(model, path)


def test_other_optimizers_are_refused(tmp_path: Path) -> None:
    model = model_of()
    path = tmp_path / "optimizer.pt"
    torch.save(torch.optim.SGD(model.parameters(), momentum=0.9).state_dict(), path)
    assert "AdamW" in refusal(model, path)
    for content in ([], {"state": {}, "param_groups": []}, {"state": 3, "param_groups": [{}]}):
        torch.save(content, path)
        assert "AdamW" in refusal(model, path)
    trained(tmp_path, one_group, model, amsgrad=True)
    assert "AdamW" in refusal(model, path)


class Harmful:
    """A pickle that would run a program."""

    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('code of a file was run')",)


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "optimizer.pt"
    torch.save({"state": Harmful()}, path)
    assert "no code in it was run" in refusal(model_of(), path)
    path.write_bytes(pickle.dumps(Harmful()))
    assert "no code in it was run" in refusal(model_of(), path)


def test_damaged_files_are_one_line(tmp_path: Path) -> None:
    model = model_of()
    _, path = trained(tmp_path, by_norms, model)
    whole = path.read_bytes()
    for content in (b"", b"PK\x03\x04", whole[: len(whole) // 2], b"\x00" * 1000, whole[:-30]):
        path.write_bytes(content)
        refusal(model, path)
    path.unlink()
    refusal(model, path)
    path.mkdir()
    refusal(model, path)


def test_a_huge_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "optimizer.pt"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("it was read"))
    assert "too large" in refusal(model_of(), path)

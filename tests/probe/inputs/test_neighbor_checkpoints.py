"""Which folders and files next to a model are earlier weights of its run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from grpodoctor.probe.inputs.neighbor_checkpoints import (
    MOST_CHECKPOINTS,
    earlier_adapters,
    neighbors_of,
)


def written(folder: Path, value: float, *, size: int = 2) -> Path:
    folder.mkdir(parents=True)
    save_file({"model.norm.weight": torch.full((size,), value)}, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    return folder


def test_a_model_without_neighbors(tmp_path: Path) -> None:
    assert neighbors_of(written(tmp_path / "model", 1.0)).all == ()
    assert neighbors_of(tmp_path / "missing").all == ()
    assert neighbors_of(Path("Qwen/Qwen3-0.6B")).all == ()


@pytest.mark.parametrize(
    "place",
    ["checkpoint-{}", "global_step_{}/actor/huggingface", "step_{}", "iter_{:07d}", "epoch{}/hf"],
)
def test_lower_numbers_come_first_from_the_newest(tmp_path: Path, place: str) -> None:
    folders = {n: written(tmp_path / place.format(n), float(n)) for n in (5, 40, 100, 200, 300)}
    found = neighbors_of(folders[200])
    assert found.checkpoints == (folders[100], folders[40], folders[5])
    assert len(found.checkpoints) == MOST_CHECKPOINTS
    assert found.optimizer is None


def test_folders_of_another_kind_are_no_checkpoints(tmp_path: Path) -> None:
    model = written(tmp_path / "checkpoint-20", 1.0)
    written(tmp_path / "checkpoint-10", 2.0, size=3)  # another model
    written(tmp_path / "step_15", 2.0)  # another run's numbers
    (tmp_path / "checkpoint-5").mkdir()  # an adapter, or a checkpoint without weights
    damaged = tmp_path / "checkpoint-4"
    damaged.mkdir()
    (damaged / "config.json").write_text("{}")
    (damaged / "model.safetensors").write_bytes(b"\xff" * 20)
    assert neighbors_of(model).all == ()


def test_the_optimizer_of_the_model(tmp_path: Path) -> None:
    model = written(tmp_path / "checkpoint-20", 1.0)
    earlier = written(tmp_path / "checkpoint-10", 2.0)
    (earlier / "optimizer.pt").touch()
    assert neighbors_of(model).optimizer is None
    (model / "optimizer.bin").touch()
    assert neighbors_of(model).all == (model / "optimizer.bin", earlier)


def test_a_final_model_above_or_next_to_its_checkpoints(tmp_path: Path) -> None:
    """The newest checkpoint often has the final weights: it has the optimizer's state."""
    final = written(tmp_path / "out", 3.0)
    last, earlier = (written(final / f"checkpoint-{n}", float(n)) for n in (3, 2))
    (last / "optimizer.pt").touch()
    assert neighbors_of(final).all == (last / "optimizer.pt", earlier)
    beside = written(tmp_path / "run" / "final", 4.0)
    older = [written(tmp_path / "run" / f"checkpoint-{n}", float(n)) for n in (3, 2)]
    assert neighbors_of(beside).all == tuple(older)


def test_earlier_adapters(tmp_path: Path) -> None:
    folders = {}
    for number in (10, 20, 30):
        folders[number] = tmp_path / f"checkpoint-{number}"
        folders[number].mkdir()
        tensors = {"q_proj.lora_A.weight": torch.full((2,), float(number))}
        save_file(tensors, folders[number] / "adapter_model.safetensors")
        (folders[number] / "adapter_config.json").write_text("{}")
    assert earlier_adapters(folders[30]) == (folders[20], folders[10])
    assert earlier_adapters(folders[10]) == ()
    assert earlier_adapters(tmp_path / "missing") == ()
    assert neighbors_of(folders[30]).checkpoints == ()

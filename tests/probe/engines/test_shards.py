"""Shards may hold anything: what does not fit is refused in a line, and never compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpodoctor.errors import EngineError
from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.engines.shards import read_shard
from tests.probe.pairs import random_responses, with_experts, write


def changed(folder: Path, **arrays: Any) -> Path:
    """A sound pair of folders, of which the learner's shard has some arrays replaced."""
    routed = [
        with_experts(each, *(np.zeros((len(each.sampler), 2, 2), int) for _ in range(2)))
        for each in random_responses(8, 1)
    ]
    _, learner = write(folder, routed)
    path = learner / "shard-00000.npz"
    with np.load(path) as whole:
        kept = {name: whole[name] for name in whole.files}
    made = {name: make(kept[name]) for name, make in arrays.items()}
    np.savez(path, **(kept | made))
    return path


@pytest.mark.parametrize(
    "arrays",
    [
        {"experts_NLK": lambda a: a[:, :, 0]},
        {"experts_NLK": lambda a: a.astype(float)},
        {"experts_NLK": lambda a: a[:-1]},
        {"experts_NLK": lambda a: np.repeat(a, 3000, axis=1)},
        {"logprobs_N": lambda a: np.stack([a, a], axis=1)},
        {"logprobs_N": lambda a: a.astype(str)},
        {"logprobs_N": lambda a: a.astype(complex)},
        {"response_offsets": lambda a: a[::-1]},
        {"response_offsets": lambda a: a.astype(float)},
        {"response_offsets": lambda _: np.array(3)},
        {"prompt_B": lambda a: a[:, None]},
        {"ended_B": lambda a: np.array(["yes"] * len(a))},
        {"prompt_ids_P": lambda a: a.astype(object)},
    ],
    ids=lambda arrays: next(iter(arrays)),
)
def test_inconsistent_arrays_are_refused(tmp_path: Path, arrays: dict[str, Any]) -> None:
    path = changed(tmp_path, **arrays)
    with pytest.raises(EngineError, match="cannot be used") as caught:
        compare(tmp_path / "sampler", tmp_path / "learner")
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK", b"not a shard", bytes(range(256)) * 8])
def test_invalid_shard_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "shard-00000.npz"
    path.write_bytes(content)
    with pytest.raises(EngineError, match="cannot be used"):
        read_shard(path)


def test_numbers_of_another_width_are_accepted(tmp_path: Path) -> None:
    widened = {"logprobs_N": lambda a: a.astype(np.float64), "prompt_B": lambda a: a.astype("i8")}
    changed(tmp_path, **widened)
    found = compare(tmp_path / "sampler", tmp_path / "learner")
    assert found.experts is not None
    assert found.responses == 8

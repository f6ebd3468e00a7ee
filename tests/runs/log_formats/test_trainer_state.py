"""The state that transformers rewrites at every checkpoint."""

from __future__ import annotations

import json
import math
from pathlib import Path

from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.frameworks.run_config import is_checkpoint
from grpodoctor.runs.log_formats.trainer_state import TrainerState, progress_of


def write(path: Path, steps: range) -> None:
    history = [{"step": step, "reward": step / 100, "loss": 0.0} for step in steps]
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"global_step": steps[-1], "log_history": history}))


def test_each_entry_is_returned_once(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    reader = TrainerState(path, RowKeys())
    assert reader.read().records == []
    write(path, range(1, 4))
    assert [row.step for row in reader.read().records] == [1, 2, 3]
    assert reader.read().records == []
    write(path, range(1, 7))
    assert [row.step for row in reader.read().records] == [4, 5, 6]
    reader.rewind()
    assert len(reader.read().records) == 6


def test_half_a_state_is_damage_until_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    write(path, range(1, 4))
    text = path.read_text()
    path.write_text(text[:40])
    reader = TrainerState(path, RowKeys())
    assert "not JSON" in reader.read().damage[0].why
    path.write_text(text)
    assert len(reader.read().records) == 3


def test_invalid_entries_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text('{"log_history": [{"step": 1, "loss": 1}, 3, {"step": 2, "loss": 2}]}')
    chunk = TrainerState(path, RowKeys()).read()
    assert [row.step for row in chunk.records] == [1, 2]
    assert chunk.damage[0].why == "not an object"


def test_nan_and_infinity_are_read_as_python_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text('{"log_history": [{"step": 1, "kl": NaN, "loss": -Infinity}]}')
    (row,) = TrainerState(path, RowKeys()).read().records
    assert math.isnan(row.values["kl"])
    assert row.values["loss"] == -math.inf


def test_an_oversized_state_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    write(path, range(1, 4))
    with path.open("r+b") as file:
        file.truncate(300 * 1024 * 1024)  # sparse: no bytes on disk
    assert "larger than" in TrainerState(path, RowKeys()).read().damage[0].why


def test_the_newest_checkpoint_is_found_by_its_step(tmp_path: Path) -> None:
    for step in (90, 100, 1000):
        write(tmp_path / f"checkpoint-{step}" / "trainer_state.json", range(1, step))
    states = sorted(tmp_path.glob("*/trainer_state.json"), key=progress_of)
    assert [each.parent.name for each in states] == [
        "checkpoint-90",
        "checkpoint-100",
        "checkpoint-1000",
    ]
    assert is_checkpoint(states[0].parent)
    assert not is_checkpoint(tmp_path)
    assert progress_of(tmp_path / "missing.json") == (-1, 0)

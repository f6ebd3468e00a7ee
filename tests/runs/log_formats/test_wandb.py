"""Logs of W&B, written by W&B itself in offline mode."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from grpodoctor.errors import RunError
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.registry import log_format_of
from grpodoctor.runs.log_formats.wandb import Wandb
from grpodoctor.runs.reading.opening import FrameworkRun, open_run
from grpodoctor.vocabulary.values import scalar
from tests.runs.log_formats.binary_logs import rows_around_cut, rows_of

pytest.importorskip("wandb", exc_type=ImportError)

STEPS = 40
SCRIPT = f"""
import wandb
run = wandb.init(mode="offline", project="p", config={{
    "num_generations": 8, "beta": 0.04, "learning_rate": 1e-6, "optimizer": {{"name": "adamw"}}}})
for step in range(1, {STEPS} + 1):
    run.log({{
        "train/reward": step / 64, "train/reward_std": 0.25, "train/completion_length": 100 + step,
        "train/kl": float("nan") if step == 3 else 0.001, "train/global_step": step,
        "note": "text", "nested": {{"x": 1, "y": 2.5}},
        "long": "x" * (50_000 if step == 2 else 1),
    }})
    run.log({{"eval/reward": 0.5, "train/global_step": step}})
print("hello")
run.finish()
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An offline run as W&B leaves it."""
    home = tmp_path_factory.mktemp("wandb-home")
    environment = {
        **os.environ, "WANDB_DIR": str(home), "WANDB_SILENT": "true", "HOME": str(home),
        "WANDB_MODE": "offline", "WANDB_CACHE_DIR": str(home), "WANDB_CONFIG_DIR": str(home),
    }  # fmt: skip
    subprocess.run([sys.executable, "-c", SCRIPT], env=environment, check=True, cwd=home)
    return home / "wandb"


@pytest.fixture(scope="module")
def log(directory: Path) -> Path:
    (path,) = directory.glob("offline-run-*/run-*.wandb")
    return path


def test_rows_equal_the_logged_values(log: Path) -> None:
    assert log_format_of(log).name == "wandb"
    rows, damage = rows_of(Wandb(log, RowKeys()))
    assert not damage
    trained = [row for row in rows if "train/reward" in row.values]
    assert [row.step for row in trained] == list(range(1, STEPS + 1))
    assert [row.values["train/reward"] for row in trained] == [
        step / 64 for step in range(1, STEPS + 1)
    ]
    assert math.isnan(trained[2].values["train/kl"])
    assert trained[0].values["nested.x"] == 1
    assert trained[0].values["nested.y"] == 2.5
    assert trained[0].texts["note"] == "text"
    assert trained[0].time > 1e9
    assert sum("eval/reward" in row.values for row in rows) == STEPS


def test_the_config_is_read_from_the_log(log: Path) -> None:
    reader = Wandb(log, RowKeys())
    rows_of(reader)
    assert reader.config["num_generations"] == 8
    assert reader.config["optimizer"] == {"name": "adamw"}
    assert "_wandb" not in reader.config


def test_the_directory_of_the_run_is_a_run(directory: Path) -> None:
    run = open_run(directory)
    steps = {record.step: record for record in run.steps}
    assert run.manifest.framework == "trl"
    assert run.manifest.knobs["group_size"] == 8
    assert sorted(steps) == list(range(1, STEPS + 1))
    assert scalar(steps[STEPS].values["reward/mean"]) == STEPS / 64
    assert run.damaged_lines == 0


def test_without_trainer_steps_the_step_of_wandb_counts(tmp_path: Path) -> None:
    path = tmp_path / "run-x.wandb"
    path.write_bytes(_log([_history({"reward": b"0.5", "_step": b"7"}), _history({"x": b"1"}, 9)]))
    rows, damage = rows_of(Wandb(path, RowKeys()))
    assert not damage
    assert [(row.step, dict(row.values)) for row in rows] == [(7, {"reward": 0.5}), (9, {"x": 1.0})]


@pytest.mark.slow
def test_a_file_cut_anywhere_is_read_up_to_the_cut_and_continued(log: Path, tmp_path: Path) -> None:
    data = log.read_bytes()
    whole, _ = rows_of(Wandb(log, RowKeys()))
    torn = tmp_path / "run-torn.wandb"
    for cut in range(8, len(data), 1009):
        rows = rows_around_cut(data, cut, torn, lambda path: Wandb(path, RowKeys()))
        assert [row.step for row in rows] == [row.step for row in whole]


def test_a_damaged_block_is_counted_and_the_others_are_read(log: Path, tmp_path: Path) -> None:
    data = bytearray(log.read_bytes())
    whole, _ = rows_of(Wandb(log, RowKeys()))
    data[len(data) - 300] ^= 0xFF
    torn = tmp_path / "run-torn.wandb"
    torn.write_bytes(data)
    rows, damage = rows_of(Wandb(torn, RowKeys()))
    assert damage
    assert len(whole) - 4 <= len(rows) <= len(whole)


def test_a_record_over_several_blocks_is_joined(tmp_path: Path) -> None:
    path = tmp_path / "run-x.wandb"
    text = b'"' + b"x" * 200_000 + b'"'
    path.write_bytes(
        _log([_history({"a": b"1"}, 1), _history({"t": text}, 2), _history({"a": b"3"}, 3)])
    )
    rows, damage = rows_of(Wandb(path, RowKeys()))
    assert not damage
    assert [row.step for row in rows] == [1, 2, 3]
    assert len(rows[1].texts["t"]) == 200_000


def test_an_oversized_record_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "run-x.wandb"
    text = b'"' + b"x" * (9 * 1024 * 1024) + b'"'
    path.write_bytes(_log([_history({"a": b"1"}, 1), _history({"t": text}, 2)] * 2))
    rows, damage = rows_of(Wandb(path, RowKeys()))
    assert len(damage) >= 1
    assert [row.step for row in rows] == [1, 1]


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _part(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _history(values: dict[str, bytes], step: int | None = None) -> bytes:
    items = b"".join(
        _part(1, _part(1, key.encode()) + _part(16, text)) for key, text in values.items()
    )
    stated = b"" if step is None else _part(2, b"\x08" + _varint(step))
    return _part(2, items + stated)


def _log(records: list[bytes]) -> bytes:
    """The framing as LevelDB documents it, with W&B's header."""
    data = bytearray(b":W&B\xe1\xbe\x00")
    for record in records:
        rest, begun = record, False
        while rest or not begun:
            room = 32768 - len(data) % 32768
            if room < 7:
                data += bytes(room)
                continue
            piece, rest = rest[: room - 7], rest[room - 7 :]
            kind = (4 if begun else 1) if not rest else (3 if begun else 2)
            data += struct.pack(
                "<IHB", zlib.crc32(piece, zlib.crc32(bytes([kind]))), len(piece), kind
            )
            data += piece
            begun = True
    return bytes(data)


def test_a_summary_alone_is_one_step_and_names_the_history(tmp_path: Path) -> None:
    row = {"_step": 120, "_runtime": 60, "actor/entropy": 0.3, "critic/score/mean": 0.5}
    (tmp_path / "files").mkdir()
    (tmp_path / "files/wandb-summary.json").write_text(json.dumps(row))
    for path in (tmp_path, tmp_path / "files/wandb-summary.json"):
        run = open_run(path)
        assert [step.step for step in run.steps] == [120]
        assert isinstance(run, FrameworkRun)
        assert any("the history is in run-*.wandb" in note for note in run.notes)


def test_a_log_without_history_has_no_step(tmp_path: Path) -> None:
    """A run that ended before it logged anything leaves a header and its settings."""
    path = tmp_path / "run-a1b2c3.wandb"
    path.write_bytes(_log([]))
    with pytest.raises(RunError, match="the file is a W&B log without a step"):
        open_run(path)

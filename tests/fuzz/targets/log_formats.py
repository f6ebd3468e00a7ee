"""Every log format, read to the end and opened by `check`'s own way of finding the format."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.registry import all_log_formats, log_format_named
from grpodoctor.runs.reading.opening import follow, open_run
from tests.fuzz.mutations import binaries, texts
from tests.fuzz.targets.base import Mutation, Target
from tests.runs.log_formats.sound_logs import SOUND

_FILES: dict[str, tuple[str, Mutation]] = {
    "jsonl": ("metrics.jsonl", texts.json_lines),
    "json": ("history.json", texts.json_document),
    "trainer_state": ("trainer_state.json", texts.json_document),
    "notebook": ("train.ipynb", texts.json_document),
    "kaggle": ("kernel.log", texts.json_document),
    "csv": ("history.csv", texts.csv_cells),
    "console": ("train.log", texts.words),
    "tensorboard": ("events.out.tfevents.1700000000.host.1.0", binaries.event_frames),
    "wandb": ("wandb/run-20260101_000000-abc/run-abc.wandb", binaries.wandb_records),
    "trackio": ("project.db", binaries.database_rows),
    "mlflow": ("mlruns/0/abc/metrics/reward", texts.words),
    "parquet": ("history.parquet", binaries.parquet_columns),
}
"""For each format a path that it claims, and the damage that keeps its structure."""

_MLFLOW = {"mlruns/0/abc/meta.yaml": b"run_id: abc".strip}

_MOST_READS = 5_000
"""Reads after which a reader of these small files does not end."""


def targets() -> list[Target]:
    """One target per registered format, and one for packed logs."""
    formats = [
        Target(f"log: {each.name}", path, _sound(each.name), _reader(each.name), mutation,
               _MLFLOW if each.name == "mlflow" else {})
        for each in all_log_formats()
        for path, mutation in [_FILES[each.name]]
    ]  # fmt: skip
    packed = Target(
        "log: packed with gzip",
        "metrics.jsonl.gz",
        lambda: gzip.compress(SOUND["jsonl"], 1),
        _open_and_follow,
        binaries.gzip_lines,
    )
    return [*formats, packed]


def _sound(name: str) -> Callable[[], bytes]:
    return lambda: SOUND[name]


def _reader(name: str) -> Callable[[Path], object]:
    def read(path: Path) -> None:
        form = log_format_named(name)
        assert form is not None
        reader = form.open(path, RowKeys())
        reads = idle = 0
        while idle < 2:
            chunk = reader.read()
            idle = 0 if chunk.more or chunk.records else idle + 1
            reads += 1
            if reads > _MOST_READS:
                raise AssertionError("the reader does not end")
        _open_and_follow(path)

    return read


def _open_and_follow(path: Path) -> None:
    """As `check` and `watch` do."""
    follower, more = follow(path), True
    while more:
        more = follower.poll(final=True).more
    run = open_run(path)
    for _ in run.steps:
        pass
    list(run.damage)

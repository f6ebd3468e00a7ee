"""What it costs to have lines and checkpoints on disk: with fsync, and the same without.

Both are measured in turn in one run, in a temporary folder of the current directory, because
/tmp may be in memory. The writer process pays for the lines, the training for the checkpoints.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np

from grpodoctor.runs.recording.directory import append_line
from grpodoctor.runs.records import StepRecord
from grpodoctor.support.files.atomic_files import atomic_folder
from grpodoctor.vocabulary.values import Mean

ROUNDS = 200
CHECKPOINT_ROUNDS = 12
CHECKPOINT_FILES = {"model.safetensors": 32, "optimizer.safetensors": 64, "state.json": 0}
"""Sizes in MB: AdamW keeps two numbers per weight."""


def step_line() -> bytes:
    """A line with sixty metrics."""
    values = {f"reward/component/part{number}/mean": Mean.of([0.25]) for number in range(60)}
    return StepRecord(1, values).to_line()


def write_checkpoint(folder: Path, number: int) -> None:
    """Write files of a checkpoint's sizes as a checkpoint is written."""
    content = np.random.default_rng(number).bytes(1 << 20)
    with atomic_folder(folder / f"step-{number:06d}") as part:
        for name, megabytes in CHECKPOINT_FILES.items():
            with (part / name).open("wb") as file:
                for _ in range(max(1, megabytes)):
                    file.write(content)


def compare(what: str, work: Callable[[int], None], rounds: int) -> None:
    """Print the median times of `work` with and without fsync, and their ratio."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * rounds):
        is_durable = number % 2 == 0
        began = time.perf_counter()
        if is_durable:
            work(number)
        else:
            with patch.object(os, "fsync", lambda _: None):
                work(number)
        seconds[is_durable].append(time.perf_counter() - began)
    durable, fast = (1e3 * statistics.median(seconds[kind]) for kind in (True, False))
    slow = 1e3 * float(np.quantile(seconds[True], 0.95))
    print(
        f"{what}: {durable:.2f} ms with fsync (95 % below {slow:.2f} ms), {fast:.2f} ms without: "
        f"{durable / fast:.1f} times"
    )


def main() -> None:
    """Compare the line of a step and a checkpoint."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-fsync-") as name:
        folder, line = Path(name), step_line()
        (folder / "steps.jsonl").touch()
        what = f"line of a step, {len(line) / 1e3:.0f} kB"
        compare(what, lambda _: append_line(folder / "steps.jsonl", line), ROUNDS)
        megabytes = sum(CHECKPOINT_FILES.values())
        what = f"checkpoint of {megabytes} MB"
        compare(what, lambda number: write_checkpoint(folder, number), CHECKPOINT_ROUNDS)


if __name__ == "__main__":
    main()

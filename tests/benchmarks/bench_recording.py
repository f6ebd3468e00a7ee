"""The cost of recording: the same training run with and without it.

Two trainers with the demo's configuration take turns in one process, ten steps each, so that both
see the same machine load. Between turns the writer process finishes its work, so that it does not
slow down the other trainer.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from grpodoctor.cli.commands.demo import FAULT
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.loop import Trainer

BLOCK = 10


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=20, help="turns of ten steps per trainer")
    blocks = parser.parse_args().blocks
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        trainers = {
            name: _trainer(Path(folder) / name, settings)
            for name, settings in {
                "recording off": ["record.enabled=false"],
                "recording on": [],
            }.items()
        }
        seconds = _take_turns(trainers, blocks)
    _print(seconds)


def _trainer(run_dir: Path, settings: list[str]) -> Trainer:
    common = [*FAULT, "evaluation.every=0", "steps=1000000"]
    return Trainer(load_config(assignments=[*common, *settings]), run_dir)


def _take_turns(trainers: dict[str, Trainer], blocks: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    for block in range(blocks + 1):
        for name, trainer in trainers.items():
            started = time.perf_counter()
            for _ in range(BLOCK):
                trainer.train_step()
            if block:  # the first turn warms up
                seconds[name].append((time.perf_counter() - started) / BLOCK)
            time.sleep(0.1)  # the writer process finishes outside the measured time
    for trainer in trainers.values():
        trainer.recording.close(finished=True)
    return seconds


def _print(seconds: dict[str, list[float]]) -> None:
    off, on = (np.array(values) for values in seconds.values())
    table = Table(title="Seconds per step, demo configuration, one torch thread")
    for heading in ("", "median", "fastest"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, values in seconds.items():
        table.add_row(name, f"{statistics.median(values):.4f}", f"{min(values):.4f}")
    rng = np.random.default_rng(0)
    picks = rng.integers(0, off.size, (2000, off.size))
    ratios = np.median((on / off)[picks], axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    console = Console()
    console.print(table)
    console.print(
        f"recording costs {100 * (np.median(on / off) - 1):+.1f} % of a step "
        f"(median of {off.size} pairs; 95 % bootstrap {100 * (low - 1):+.1f} to "
        f"{100 * (high - 1):+.1f} %)"
    )


if __name__ == "__main__":
    main()

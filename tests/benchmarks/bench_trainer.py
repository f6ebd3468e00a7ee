"""Training steps compared with TRL's `GRPOTrainer`, and how step time grows with the batch.

Both train the same tiny model with the same prompts, reward, loss (token mean, no KL, one update
per batch), batch, optimizer and number of threads. TRL runs without logging, saving or gradient
checkpointing. Each trainer runs in its own process, and they take turns, so that both see the same
machine load. Memory is the largest resident set, including the recorder's process. CPU time
excludes that process; it is more reliable than wall-clock time if other programs use the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from trainer_contenders import (
    COMPLETIONS,
    GROUP,
    LENGTH,
    SIZES,
    save_model,
    save_prompts,
)

PROGRAM = Path(__file__).with_name("trainer_contenders.py")
NAMES = {
    "TRL": "TRL",
    "recorded": "grpodoctor, recording",
    "unrecorded": "grpodoctor, not recording",
    "lean": "lean: one decode, forward and backward",
    "compiled": "the same with compiled layers",
    "modules": "the same with transformers' modules",
    "products": "their matrix products and attention",
}
"""The lean contenders process the tokens of a step, without rewards, sampling and optimizer."""
BLOCK = 4


class Contender:
    """A trainer in its own process."""

    def __init__(self, name: str, folder: Path, threads: int) -> None:
        files = [str(folder / "model"), str(folder / "prompts.jsonl")]
        options = ["--threads", str(threads)]
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_CACHE": str(folder / "datasets"),
            "OMP_NUM_THREADS": str(threads),
        }
        self._log = folder / f"{name}.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), name, *files, *options],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.peak: int = self._figures()["peak"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate("0\n", timeout=60)
        finally:
            self._process.kill()

    def take(self, steps: int) -> Any:
        """Run some steps; returns the seconds that the process reports."""
        assert self._process.stdin is not None
        print(steps, file=self._process.stdin, flush=True)
        figures = self._figures()
        self.peak = figures["peak"]
        return figures["seconds"]

    def _figures(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                figures: dict[str, Any] = json.loads(line)
                return figures
        raise SystemExit(f"a trainer process ended:\n{self._log.read_text()[-3000:]}")


def compare(folder: Path, console: Console, threads: int, rounds: int) -> None:
    """Print the figures of the bundled trainer and of TRL."""
    contenders = {name: Contender(name, folder, threads) for name in NAMES}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in NAMES}
    for turn in track(range(rounds + 1), "taking turns", console=console, transient=True):
        for name, contender in contenders.items():
            taken = contender.take(BLOCK)
            if turn:  # the first warms up
                seconds[name].append(taken)
            time.sleep(0.1)  # the recorder's process finishes before the next trainer starts
    for contender in contenders.values():
        contender.__exit__()
    _print_comparison(contenders, seconds, console, threads)


def _print_comparison(
    contenders: dict[str, Contender],
    seconds: dict[str, list[tuple[float, float]]],
    console: Console,
    threads: int,
) -> None:
    table = Table(
        title=f"{COMPLETIONS} completions of {LENGTH} tokens, groups of {GROUP}, one update, "
        f"{threads} thread{'s' if threads > 1 else ''}",
        caption="goals: at least 2.5 times TRL's steps per second with no more memory, and at most "
        "1.3 times the lean passes; memory includes the recorder's process",
    )
    headings = ("", "step", "tokens/s", "peak memory", "CPU time", "speed-up", "by CPU")
    for heading in (*headings, "/ lean", "by CPU"):
        table.add_column(heading, justify="right" if heading else "left")
    trl, lean = np.array(seconds["TRL"]), np.array(seconds["lean"])
    for name, contender in contenders.items():
        step, cpu = np.median(seconds[name], axis=0)
        speedup, cpu_speedup = np.median(trl / np.array(seconds[name]), axis=0)
        share, cpu_share = np.median(np.array(seconds[name]) / lean, axis=0)
        table.add_row(
            NAMES[name],
            f"{step * 1e3:.0f} ms",
            f"{COMPLETIONS * LENGTH / step:,.0f}",
            f"{contender.peak / 2**20:.0f} MiB",
            f"{cpu * 1e3:.0f} ms",
            f"{speedup:.2f} x",
            f"{cpu_speedup:.2f} x",
            f"{share:.2f} x",
            f"{cpu_share:.2f} x",
        )
    console.print(table)
    recorded, bare = np.array(seconds["recorded"]), np.array(seconds["unrecorded"])
    costs = (recorded / bare - 1) * 100
    low, high = _interval_of_median(costs[:, 1])
    console.print(
        f"recording: {np.median(costs[:, 0]):+.1f} % of the step's time, "
        f"{np.median(costs[:, 1]):+.1f} % of its CPU time (95 % interval {low:+.1f} to {high:+.1f})"
    )


def _interval_of_median(values: np.ndarray) -> tuple[float, float]:
    """The 95 % bootstrap interval of a median."""
    drawn = np.random.default_rng(0).choice(values, (10_000, len(values)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5]).tolist()
    return low, high


def show_growth(folder: Path, console: Console, threads: int, rounds: int) -> None:
    """Print how step time grows with the number of completions and with their length."""
    with Contender("growth", folder, threads) as contender:
        turns = [
            contender.take(1)
            for _ in track(range(rounds), "growing", console=console, transient=True)
        ]
    medians = dict(zip(SIZES, np.median(turns, axis=0).tolist(), strict=True))
    table = Table(
        title="Seconds per step as the batch grows, recording",
        caption="attention: that of the same forward, backward and decoding passes alone",
    )
    for heading in ("completions", "tokens", "step", "tokens/s", "CPU time", "attention", "share"):
        table.add_column(heading, justify="right")
    for (count, length), (step, cpu, _, attention) in medians.items():
        figures = [f"{step:.3f} s", f"{count * length / step:,.0f}", f"{cpu:.3f} s"]
        shares = [f"{attention:.3f} s", f"{100 * attention / cpu:.0f} %"]
        table.add_row(str(count), str(length), *figures, *shares)
    console.print(table)
    for what, column in {"completions": 0, "length": 1}.items():
        grown = [size for size in SIZES if size[1 - column] == (COMPLETIONS, LENGTH)[1 - column]]
        logs = np.log([size[column] for size in grown])
        times = np.array([medians[size] for size in grown])
        times = np.column_stack([times[:, 0], times[:, 1], times[:, 1] - times[:, 3]])
        slopes = np.polyfit(logs, np.log(times), 1)[0]
        console.print(
            f"step time grows as {what} to the power of {slopes[0]:.2f}, CPU time to the power of "
            f"{slopes[1]:.2f}, CPU time without attention to the power of {slopes[2]:.2f}"
        )


def main() -> None:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1, help="torch threads per trainer")
    parser.add_argument("--rounds", type=int, default=12, help=f"turns of {BLOCK} steps each")
    parser.add_argument("--growth-rounds", type=int, default=5, help="steps per batch size")
    arguments = parser.parse_args()
    console = Console(width=110)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_model(folder / "model")
        save_prompts(folder / "prompts.jsonl")
        if arguments.rounds:
            compare(folder, console, arguments.threads, arguments.rounds)
        if arguments.growth_rounds:
            show_growth(folder, console, arguments.threads, arguments.growth_rounds)


if __name__ == "__main__":
    main()

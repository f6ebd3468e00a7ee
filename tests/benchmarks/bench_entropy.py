"""Entropy and log-probability compared with TRL's two functions, on the same logits.

Both run on one thread. They are timed in turns in one process, so that other load on the machine
affects both. Memory is measured in a new process for each, as the rise of the resident set's
high-water mark above the logits.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from grpodoctor.measure.batch import RolloutBatch, UpdateBatch
from grpodoctor.measure.step import rollout_readings
from grpodoctor.measure.updates import update_readings

if TYPE_CHECKING:
    from torch import Tensor

    Scorer = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

ROWS, VOCABULARY = 512, 151_936
REPEATS = 5
VARIANTS = ("grpodoctor", "trl")
DTYPES = ("float32", "bfloat16")


def high_water_mark() -> int:
    """Largest resident set since the last reset, in bytes."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def extra_memory(call: Callable[[], object]) -> int:
    """Bytes by which `call` raises the resident set.

    Freed memory is returned to the system first, so that `call` cannot reuse it unnoticed.
    """
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    before = high_water_mark()
    call()
    return high_water_mark() - before


def seconds_of(call: Callable[[], object]) -> float:
    """Duration of one call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def median_of(call: Callable[[], object], repeats: int = 200) -> float:
    """Median duration of many short calls."""
    return statistics.median(seconds_of(call) for _ in range(repeats))


def scorer_of(variant: str) -> Scorer:
    """The function of a variant that computes both quantities."""
    if variant == "grpodoctor":
        from grpodoctor.measure.logits import entropy_and_logprobs

        return entropy_and_logprobs
    from trl.trainer.utils import entropy_from_logits, selective_log_softmax

    return lambda logits, ids: (entropy_from_logits(logits), selective_log_softmax(logits, ids))


def largest_error(scored: tuple[Tensor, Tensor], logits: Tensor, ids: Tensor) -> float:
    """Largest difference from float64 over both quantities, in nats, row by row."""
    worst = 0.0
    for entropy, logprob, row, token in zip(*scored, logits, ids, strict=True):
        exact = row.double().log_softmax(-1)
        exact_entropy = float(-(exact.exp() * exact).sum())
        worst = max(worst, abs(float(entropy) - exact_entropy))
        worst = max(worst, abs(float(logprob) - float(exact[token])))
    return worst


def make_logits(dtype: str) -> tuple[Tensor, Tensor]:
    """The same logits and tokens in every process."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    logits = torch.empty(ROWS, VOCABULARY, dtype=getattr(torch, dtype))
    for row in logits:
        row.copy_(torch.randn(VOCABULARY) * 3)
    return logits, torch.randint(0, VOCABULARY, (ROWS,))


def measure_memory(variant: str, dtype: str) -> dict[str, float]:
    """Extra memory in bytes and largest error of one variant."""
    import torch

    logits, ids = make_logits(dtype)
    score = scorer_of(variant)
    with torch.no_grad():
        score(logits[:2, :64], ids[:2] % 64)
        memory = extra_memory(lambda: score(logits, ids))
        error = largest_error(score(logits, ids), logits, ids)
    return {"memory": memory, "error": error}


def measure_time(dtype: str) -> dict[str, float]:
    """Median seconds of each variant, called in turns on one tensor."""
    import torch

    logits, ids = make_logits(dtype)
    scorers = {variant: scorer_of(variant) for variant in VARIANTS}
    durations: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    with torch.no_grad():
        for _ in range(1 + REPEATS):
            for variant, score in scorers.items():
                durations[variant].append(seconds_of(lambda score=score: score(logits, ids)))
    return {variant: statistics.median(times[1:]) for variant, times in durations.items()}


def in_fresh_process(dtype: str, variant: str | None = None) -> dict[str, float]:
    """Run `measure_memory` of a variant, or `measure_time` of all, in a new process."""
    command = [sys.executable, __file__, "--child", "--dtype", dtype]
    command += ["--variant", variant] if variant else []
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=600, env=environment
    )
    return json.loads(done.stdout.splitlines()[-1])


def compare_variants(console: Console) -> None:
    """Print the comparison, one row per dtype and variant."""
    runs = [(dtype, variant) for dtype in DTYPES for variant in (None, *VARIANTS)]
    figures = {
        run: in_fresh_process(*run)
        for run in track(runs, "entropy and log-probability", console=console, transient=True)
    }
    table = Table(
        title=f"entropy + log-probability, {ROWS} x {VOCABULARY:,} logits, one thread",
        caption="goal in float32: at least 4 times as fast, at most 64 MiB, error below 1e-4 nats",
    )
    for heading in ("logits", "by", "median time", "speed-up", "extra memory", "largest error"):
        table.add_column(heading, justify="left" if heading in ("logits", "by") else "right")
    for dtype in DTYPES:
        seconds = figures[dtype, None]
        for variant in VARIANTS:
            figure = figures[dtype, variant]
            table.add_row(
                dtype,
                "TRL, two calls" if variant == "trl" else "grpodoctor, one pass",
                f"{seconds[variant] * 1e3:.0f} ms",
                f"{seconds['trl'] / seconds[variant]:.1f} x",
                f"{figure['memory'] / 2**20:.1f} MiB",
                f"{figure['error']:.1e} nats",
            )
    console.print(table)


def random_batches(rng: np.random.Generator) -> tuple[RolloutBatch, UpdateBatch]:
    """128 responses of up to 28 tokens with everything recorded, and one update on all of them."""
    count, width = 128, 28
    mask = np.arange(width) < rng.integers(8, width + 1, count)[:, None]
    learner = -rng.exponential(0.4, (count, width)).astype(np.float32)
    noise = rng.normal(0, 0.05, (count, width)).astype(np.float32)
    correct = rng.random(count) < 0.5
    ids = [f"1-{i}" for i in range(count)]
    entropy = rng.random((count, width), dtype=np.float32)
    advantages = rng.normal(size=count)
    rollouts = RolloutBatch(
        step=1,
        sequence_ids=ids,
        group_ids_B=np.repeat(np.arange(16), 8),
        prompt_ids=ids,
        prompts=["12+34-5="] * count,
        texts=["12+34=46. 46-5=41. #41"] * count,
        references=["41"] * count,
        tokens_BT=rng.integers(0, 30, (count, width)),
        mask_BT=mask,
        rewards_B=correct.astype(np.float32),
        truncated_B=rng.random(count) < 0.05,
        components={"answer": correct.astype(np.float32), "format": rng.random(count)},
        correct_B=correct,
        advantages_B=advantages,
        learner_logprobs_BT=learner,
        sampler_logprobs_BT=learner + noise,
        old_logprobs_BT=learner,
        entropy_BT=entropy,
        staleness_B=np.zeros(count, dtype=int),
    )
    update = UpdateBatch(
        sequence_ids=ids,
        new_logprobs_BT=learner + noise,
        old_logprobs_BT=learner,
        reference_logprobs_BT=learner - noise,
        advantages_BT=np.repeat(advantages[:, None], width, axis=1),
        loss_mask_BT=mask,
        loss=0.1,
        grad_norm=1.0,
        learning_rate=1e-3,
        clip_low=0.2,
        clip_high=0.28,
        entropy_BT=entropy,
        weights_BT=np.ones((count, width)),
        capped_BT=mask,
    )
    return rollouts, update


def time_readings(console: Console) -> None:
    """Print the time to compute the readings of a batch."""
    rollouts, update = random_batches(np.random.default_rng(0))
    rollout = median_of(lambda: rollout_readings(rollouts))
    step = median_of(lambda: update_readings(update, on_policy=False))
    table = Table(title="readings of 128 responses of up to 28 tokens, everything recorded")
    table.add_column("data")
    table.add_column("metrics", justify="right")
    table.add_column("median time", justify="right")
    table.add_row("rollout batch", str(len(rollout_readings(rollouts))), f"{rollout * 1e3:.2f} ms")
    metrics = len(update_readings(update, on_policy=False))
    table.add_row("one update on all of it", str(metrics), f"{step * 1e3:.2f} ms")
    console.print(table)


def main() -> None:
    """Print the tables, or in a child process one set of figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", action="store_true", help="print figures as JSON")
    parser.add_argument("--variant", choices=VARIANTS, help="measure this variant's memory")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    arguments = parser.parse_args()
    if arguments.child:
        dtype, variant = arguments.dtype, arguments.variant
        print(json.dumps(measure_memory(variant, dtype) if variant else measure_time(dtype)))
        return
    console = Console()
    compare_variants(console)
    time_readings(console)


if __name__ == "__main__":
    main()

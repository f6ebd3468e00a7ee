"""How long a console log of verl takes: 10,000 steps of 60 keys, on one core, under 3 seconds.

Beside it the way people do it now: a pattern over every line, and pandas, where it is installed.
"""

from __future__ import annotations

import random
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from grpodoctor.monitor.replay import replay
from grpodoctor.runs.reading.opening import open_run

STEPS, KEYS, BAR_SECONDS = 10_000, 60, 3.0
NAMED = (
    "actor/entropy", "actor/pg_loss", "actor/pg_clipfrac", "actor/pg_clipfrac_lower",
    "actor/ppo_kl", "actor/kl_loss", "actor/grad_norm", "actor/lr", "critic/score/mean",
    "critic/score/max", "critic/rewards/mean", "response_length/mean", "response_length/max",
    "response_length/clip_ratio", "perf/time_per_step", "perf/throughput",
)  # fmt: skip
PREFIX = "\x1b[36m(TaskRunner pid=4711)\x1b[0m "


def write_log(path: Path) -> None:
    """A log as `tee` catches it: Ray's prefix, colours, a progress bar after each row."""
    chance = random.Random(0)
    keys = [*NAMED, *(f"timing_s/phase_{index}" for index in range(KEYS - len(NAMED)))]
    with path.open("w") as file:
        for step in range(1, STEPS + 1):
            pairs = " - ".join(f"{key}:{chance.random():.6f}" for key in keys)
            file.write(f"{PREFIX}step:{step} - {pairs}\n")
            file.write(f"{PREFIX}\rTraining Progress:  10%|█    | {step}/{STEPS} [00:10<1:00:00]\n")


def read(path: Path) -> int:
    """All of its steps, in canonical readings."""
    return sum(1 for _ in open_run(path).steps)


def check(path: Path) -> int:
    """The same, and every rule at every step."""
    return replay(path).report.run.steps


def with_pandas(path: Path) -> int:
    """A pattern over every line, then a table."""
    import pandas as pd

    pair = re.compile(r"([\w/]+):([-\d.e]+)")
    rows = [dict(pair.findall(line)) for line in path.open() if "step:" in line]
    return len(pd.DataFrame(rows).astype(float))


def seconds(work: Callable[[Path], int], path: Path) -> float:
    """Processor time of one pass; NaN if what it needs is not installed."""
    begun = time.process_time()
    try:
        steps = work(path)
    except ImportError:
        return float("nan")
    assert steps == STEPS, steps
    return time.process_time() - begun


def main() -> int:
    """Print the times; 1 if reading takes longer than it may."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "verl.log"
        write_log(path)
        print(f"{STEPS:,} steps of {KEYS} keys, {path.stat().st_size / 1e6:.1f} MB")
        found = {work.__name__: seconds(work, path) for work in (read, check, with_pandas)}
    for name, taken in found.items():
        print(f"{name:12} {taken:6.2f} s of one core")
    print(f"check must stay below {BAR_SECONDS:.0f} s")
    return int(not found["check"] < BAR_SECONDS)


if __name__ == "__main__":
    raise SystemExit(main())

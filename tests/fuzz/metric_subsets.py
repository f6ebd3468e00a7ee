"""Runs that log any part of the metrics, for every rule: `python -m tests.fuzz.metric_subsets`.

A rule looks at several metrics, and real logs lack some of them, begin them late, log them every
fifth step or stop. Each run here logs a random part of all metrics, with one of several courses
each. No rule may raise, whatever is absent, and the report must be printable.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grpodoctor.api import check
from grpodoctor.runs.records import Manifest, StepRecord
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.metrics import METRICS
from grpodoctor.vocabulary.values import Mean
from tests.rules.scenario import healthy

_LENGTHS = (5, 12, 25, 45, 80, 130)
_LOGGED = (0.1, 0.3, 0.6, 0.9)
"""Shares of the metrics that a run logs."""
_KNOBS: dict[str, tuple[Setting, ...]] = {
    "batch_size": (8, 64),
    "group_size": (1, 2, 8, 16),
    "kl_coefficient": (0.0, 0.04),
    "learning_rate": (1e-6, 1e-3),
    "loss": ("grpo", "gspo", "cispo"),
    "max_length": (128, 1024),
    "temperature": (0.0, 0.7, 1.0),
    "updates_per_batch": (1, 4),
}

Course = NDArray[np.float64]


def metric_names() -> list[str]:
    """Every metric, with one component of a reward in place of the placeholder."""
    names = {each.name.replace("<component>", "format") for each in METRICS}
    return sorted(names | set(healthy(1)))


def random_run(seed: int) -> tuple[Manifest, list[StepRecord]]:
    """A run of random metrics; the same for the same seed."""
    random = np.random.default_rng(seed)
    steps = int(random.choice(_LENGTHS))
    share = random.choice(_LOGGED)
    knobs = {
        name: values[random.integers(len(values))]
        for name, values in _KNOBS.items()
        if random.random() < 0.4
    }
    logged = {
        name: (_course(name, steps, random), _schedule(steps, random))
        for name in metric_names()
        if random.random() < share
    }
    records = [
        StepRecord(
            step,
            {
                name: Mean.of([float(course[step])])
                for name, (course, schedule) in logged.items()
                if step in schedule
            },
        )
        for step in range(steps)
    ]
    return Manifest(framework="grpodoctor", knobs=knobs), records


def _schedule(steps: int, random: np.random.Generator) -> range:
    """The steps at which a metric is logged."""
    start = int(random.choice([0, 0, 0, steps // 2, steps - 1]))
    end = int(random.choice([steps, steps, steps // 2]))
    return range(start, end, int(random.choice([1, 1, 5])))


def _course(name: str, steps: int, random: np.random.Generator) -> Course:
    scale = 10 ** random.uniform(-4, 3)
    at = np.arange(steps)
    courses = {
        "noise": random.normal(scale, scale / 5, steps),
        "rise": scale * (1 + at / 10) + random.normal(0, scale / 20, steps),
        "decay": scale * np.exp(-at / 10),
        "constant": np.full(steps, scale),
        "zero": np.zeros(steps),
        "one": np.ones(steps),
        "negative": random.normal(-scale, scale / 5, steps),
        "spike": np.where(at == steps - 2, 100 * scale, random.normal(scale, scale / 10, steps)),
        "fall": np.where(at > steps / 2, scale, 3 * scale) + random.normal(0, scale / 20, steps),
        "counts": random.integers(0, 5, steps).astype(np.float64),
        "gaps": np.where(random.random(steps) < 0.1, np.nan, scale),
    }
    course = courses[str(random.choice(list(courses)))]
    is_share = name.endswith(("rate", "share", "fraction")) or random.random() < 0.2
    return np.clip(course, 0, 1) if is_share else course


def defects_of(seed: int, directory: Path) -> list[str]:
    """Check the run of a seed as its user would; return what went wrong.

    Args:
        seed: the run to make.
        directory: an empty folder for its files.
    """
    manifest, records = random_run(seed)
    (directory / "run.json").write_bytes(manifest.to_json())
    (directory / "steps.jsonl").write_bytes(b"".join(each.to_line() for each in records))
    report = check(directory)
    content = report.to_json()
    assert str(report)
    assert report.to_markdown()
    return [f"{each['code']}: {each['error']}" for each in content["defects"]]


def campaign(seeds: Iterable[int]) -> Counter[str]:
    """Check the runs of several seeds; print each new kind of defect with its seed."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            for defect in defects_of(seed, Path(folder)):
                if not counts[defect]:
                    print(f"seed {seed}: {defect}", flush=True)
                counts[defect] += 1
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; the exit code is 1 if a rule raised."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.metric_subsets")
    parser.add_argument("--count", type=int, default=1000, help="Number of runs. [default: 1000]")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the first run. [default: 0]")
    options = parser.parse_args(arguments)
    counts = campaign(range(options.seed, options.seed + options.count))
    print(f"{options.count} runs, {counts.total()} defects of {len(counts)} kinds")
    return min(1, counts.total())


if __name__ == "__main__":
    sys.exit(main())

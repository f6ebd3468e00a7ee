"""Train runs with mechanisms, write them with the keys of frameworks, let `check` examine them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random

from tests.benchmarks.planted_mechanisms import (
    healthy_runs,
    learner_mechanisms,
    reward_mechanisms,
    sampler_mechanisms,
)
from tests.benchmarks.planted_mechanisms.plants import HEALTHY, MECHANISMS, Mechanism
from tests.benchmarks.planted_mechanisms.run import Run, draw_sizes
from tests.benchmarks.planted_runs.examination import (
    Answer,
    SimulatedRun,
    answer_of,
    quantities_read,
)
from tests.frameworks.generated_logs import WRITERS
from tests.frameworks.log_writers.base import LoggedRun, heldout

_REGISTERED = (healthy_runs, learner_mechanisms, reward_mechanisms, sampler_mechanisms)
"""Modules that register their mechanisms when they are imported."""

_MISMATCH = (
    "logprob_diff", "logprob_diff_max", "prob_diff", "prob_diff_max", "far_moved", "pearson",
    "engine_k1", "engine_k2", "engine_kl", "engine_chi2", "weight",
)  # fmt: skip
_TOOLS = ("tool_calls", "tool_failures", "turns")
_NEVER = ("truth", "aborted", "errors", "generated_per_kept")
_ALWAYS_COMPARED = ("prime-rl", "tinker-cookbook")
_ALWAYS_KL = ("openrlhf",)

_COLUMNS = {
    "train/reward_mean": "reward",
    "train/accuracy": "accuracy",
    "train/policy_loss": "loss",
    "train/kl_ref": "kl",
    "train/entropy": "entropy",
    "train/clip_frac": "clipped",
    "train/grad_norm": "grad_norm",
    "train/lr": "learning_rate",
    "train/response_length": "length",
    "train/truncated_ratio": "truncated",
    "train/frac_groups_zero_std": "zero_variance",
    "train/logprob_diff_mean": "logprob_diff",
}


def table(run: LoggedRun, directory: Path) -> Path:
    """A CSV of a custom script, with empty cells where nothing was evaluated."""
    path = directory / "metrics.csv"
    names = {key: name for key, name in _COLUMNS.items() if name in run.at(1)}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["step", *names, "eval/accuracy"])
        for step in range(1, run.steps + 1):
            values = run.at(step)
            score = heldout(run, step)
            writer.writerow([step, *(values[name] for name in names.values()),
                             "" if score is None else score])  # fmt: skip
    return path


Writer = Callable[[LoggedRun, Path], Path]
LAYOUTS: Mapping[str, Writer] = {
    name: WRITERS[name][1]
    for name in (
        "trl", "ms-swift", "verl", "verl V1", "rllm", "openrlhf", "slime", "nemo-rl", "skyrl",
        "prime-rl", "open-instruct", "tinker-cookbook", "plain names",
    )
} | {"csv": table}  # fmt: skip


@lru_cache(maxsize=1)
def logged_quantities() -> Mapping[str, frozenset[str]]:
    """For each format, the quantities that its writer logs."""
    sizes = draw_sizes(Random("everything"))
    sizes.every = 2
    run = Run(sizes, "everything")
    rows = [run.step(number) for number in range(1, 5)]
    simulated = _simulated(run, rows)
    return {layout: quantities_read(write, simulated) for layout, write in LAYOUTS.items()}


def _simulated(run: Run, rows: Sequence[Mapping[str, float]]) -> SimulatedRun:
    sizes = run.sizes
    return SimulatedRun(len(rows), sizes.limit, sizes.prompts, sizes.group, rows)


def trained(mechanism: Mechanism, seed: str) -> tuple[Run, list[dict[str, float]]]:
    """Train a run of a mechanism; the quantities of each step, also those that no log has."""
    draw = Random(seed)
    sizes = draw_sizes(draw)
    if mechanism.prepare:
        mechanism.prepare(draw, sizes)
    run = Run(sizes, seed)
    change = mechanism.plan(draw, run)
    rows = []
    for number in range(1, sizes.steps + 1):
        if change:
            change(number)
        rows.append(run.step(number))
    return run, rows


def simulate(mechanism: Mechanism, layout: str, seed: str) -> SimulatedRun:
    """Train a run, and keep the quantities that its owner logs."""
    run, rows = trained(mechanism, seed)
    sizes = run.sizes
    hidden = set(_NEVER)
    if not sizes.logs_mismatch and layout not in _ALWAYS_COMPARED:
        hidden.update(_MISMATCH)
    if not sizes.logs_kl and layout not in _ALWAYS_KL:
        hidden.add("kl")
    if not sizes.logs_tools:
        hidden.update(_TOOLS)
    shown = [
        {
            name: float(value)
            for name, value in row.items()
            if name not in hidden and (sizes.reward_parts or not name.startswith("component/"))
        }
        for row in rows
    ]
    return _simulated(run, shown)


def layouts_with_evidence(mechanism: Mechanism) -> list[str]:
    """The formats that log one of the quantities which a mechanism needs."""
    needed = set(mechanism.needs)
    return [
        layout
        for layout, names in logged_quantities().items()
        if not needed or not needed.isdisjoint(names)
    ]


def examine(mechanism: Mechanism, layout: str, seed: str, directory: Path) -> Answer:
    """Train, write and check one run."""
    path = LAYOUTS[layout](simulate(mechanism, layout, seed), directory)
    return answer_of(mechanism, layout, path)


def cases(seed: int, only: Sequence[str], count: int) -> Iterator[tuple[Mechanism, str, str]]:
    """Mechanisms with the formats that are drawn for them and the seeds of their runs.

    Args:
        seed: of the examination.
        only: parts of names of mechanisms or formats; all if empty.
        count: formats of each mechanism; 0 for all of them.
    """
    for name, chosen in {**MECHANISMS, **HEALTHY}.items():
        layouts = layouts_with_evidence(chosen)
        draw = Random(f"mechanisms/{seed}/{name}/formats")
        for layout in draw.sample(layouts, min(count or len(layouts), len(layouts))):
            if not only or any(part in f"{name} {layout}" for part in only):
                yield chosen, layout, f"mechanisms/{seed}/{name}/{layout}"

"""Findings of the rules on healthy and sick runs of the bundled trainer.

Trains each arm with several seeds into `--out` and reuses finished runs there, so that changed
rules can be tried on the same runs within seconds. Prints a Markdown table:

    python tests/benchmarks/calibrate_rules.py --arms plain lr-5e-4 --seeds 3 --steps 100
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpodoctor.monitor.replay import replay
from grpodoctor.rules.base import SEVERITIES, Finding
from grpodoctor.rules.catalogue import all_rules
from grpodoctor.rules.engine import Engine
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.config.presets import preset_of
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.vocabulary.values import scalar

_INT4_OLD = ("engine.precision=int4", "engine.old_logprobs=sampler")
_FOUR_EPOCHS = ("optimizer.updates_per_batch=16", "optimizer.epochs=4")
_NO_CLIP = ("loss.clip_low=1", "loss.clip_high=10")


@dataclass(frozen=True)
class Arm:
    """Settings of a run, and codes; one of these should be reported first."""

    settings: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    """Empty for a healthy run, in which findings above `info` are false alarms."""
    preset: str | None = None
    steps: int | None = None
    """Steps, if not `--steps`."""
    fault: str | None = None
    """Function in `sick_routers` that is called after every step."""


_R3 = "engine.routing_replay=R3"
_MOE = ("model.experts=8", "record.experts_every=1")


def _reward(name: str) -> str:
    return f"task.reward=grpodoctor.trials.rewards:{name}"


HEALTHY: dict[str, Arm] = {
    "plain": Arm(),
    "sorting": Arm(("task.name=sorting",)),
    "counting": Arm(("task.name=counting",)),
    "preset-grpo": Arm(("optimizer.updates_per_batch=4",), preset="grpo"),
    "preset-dapo": Arm(("overlong.weight=1",), preset="dapo"),
    "preset-dr_grpo": Arm(preset="dr_grpo"),
    "preset-tis": Arm(preset="tis"),
    "one-update": Arm(("optimizer.updates_per_batch=1",)),
    "dynamic-sampling": Arm(("rollout.dynamic_sampling=true",)),
    "soft-overlong": Arm(("overlong.kind=soft-punishment",)),
    "group-4": Arm(("rollout.group_size=4",)),
    "group-16": Arm(("rollout.group_size=16",)),
    "kl-0.05": Arm(("loss.kl_coefficient=0.05",)),
    "bf16-engine": Arm(("engine.precision=bf16",)),
    "int8-engine": Arm(("engine.precision=int8",)),
    "sync-2": Arm(("engine.sync_every=2",)),
    "temperature-0.8": Arm(("rollout.temperature=0.8", "evaluation.temperature=0.8")),
    "temperature-1.2": Arm(("rollout.temperature=1.2", "evaluation.temperature=1.2")),
    "easy": Arm(("task.difficulty=2",)),
    "hard": Arm(("task.difficulty=5",)),
    "format-reward": Arm(("task.format_weight=0.2",)),
    "own-reward": Arm((_reward("good"),)),
    "lr-5e-4": Arm(("optimizer.learning_rate=5e-4",)),
    "updates-16": Arm(("optimizer.updates_per_batch=16",)),
    "no-clip": Arm((*_FOUR_EPOCHS, *_NO_CLIP)),
    "moe": Arm(_MOE),
    "moe-bf16-engine": Arm((*_MOE, "engine.precision=bf16")),
    "moe-int8-engine": Arm((*_MOE, "engine.precision=int8")),
    "moe-R3": Arm((*_MOE, "engine.precision=bf16", _R3)),
    "moe-R2": Arm((*_MOE, "engine.routing_replay=R2", "optimizer.updates_per_batch=8")),
    "moe-gspo": Arm(_MOE, preset="gspo"),
    "moe-sorting": Arm((*_MOE, "task.name=sorting")),
    "long": Arm(steps=600),
    "long-easy": Arm(("task.difficulty=1",), steps=400),
}

SICK: dict[str, Arm] = {
    "lr-1e-3": Arm(("optimizer.learning_rate=1e-3",), ("REW001", "REW002", "CLP001"), steps=150),
    "lr-2e-3": Arm(("optimizer.learning_rate=2e-3",), ("KLD001", "REW002", "CLP001")),
    "over-updated": Arm((*_FOUR_EPOCHS, "optimizer.learning_rate=5e-4"), ("CLP001", "REW002")),
    "over-updated-no-clip": Arm(
        (*_FOUR_EPOCHS, *_NO_CLIP, "optimizer.learning_rate=5e-4"), ("KLD001", "REW002", "ENT002")
    ),
    "int4-old": Arm(_INT4_OLD, ("MIS002",)),
    "int4": Arm(("engine.precision=int4",), ("MIS001", "MIS003")),
    "engine-temperature-0.7": Arm(("engine.temperature=0.7",), ("MIS003", "MIS001")),
    "sync-16": Arm(("engine.sync_every=16",), ("MIS001", "MIS003")),
    "short-limit": Arm(("rollout.max_length=12",), ("LEN002",)),
    "reward-one": Arm((_reward("one"),), ("GRP004", "REW004", "OPT001")),
    "reward-zero": Arm((_reward("zero"),), ("REW004", "GRP002", "OPT001")),
    "reward-flipped": Arm((_reward("flipped"),), ("REW003", "ENT002", "GRP004")),
    "reward-outweighed": Arm((_reward("outweighed"),), ("REW005", "REW003")),
    "reward-noise": Arm((_reward("noise"),), ("REW018", "REW001", "ENT002"), steps=150),
    "reward-length": Arm((_reward("length_bonus"),), ("LEN002", "REW003")),
    "reward-cancels": Arm((_reward("canceling"),), ("GRP003",)),
    "hacked-verifier": Arm(
        ("task.verifier=any", "task.hedge_rate=0.1"), ("REW005", "REW003"), steps=150
    ),
    "moe-int4": Arm((*_MOE, "engine.precision=int4"), ("MOE001", "MIS001", "MIS003")),
    "moe-lr-1e-3": Arm((*_MOE, "optimizer.learning_rate=1e-3"), ("KLD001", "REW002", "CLP001")),
    "moe-lr-3e-3": Arm((*_MOE, "optimizer.learning_rate=3e-3"), ("MOE002", "REW002", "CLP001")),
    "moe-overloaded": Arm(_MOE, ("MOE003",), steps=60, fault="overloaded"),
    "moe-sharpened": Arm(_MOE, ("MOE004",), steps=60, fault="sharpened"),
    "moe-R3-lost": Arm((*_MOE, _R3), ("MOE005",), steps=60, fault="lost_routes"),
    "moe-R3-disobeyed": Arm((*_MOE, _R3), ("MOE005",), steps=60, fault="ignored_routes"),
    "too-hard": Arm(("model.warm_start_steps=0",), ("GRP002",)),
}

ARMS = HEALTHY | SICK


@dataclass(frozen=True)
class RunResult:
    """Findings of one run."""

    findings: tuple[Finding, ...]
    """In the order of a report: each cause followed by its symptoms."""
    raised: Counter[str]
    heldout: tuple[float, float]
    """Mean of the first and of the last three evaluations."""


def train(name: str, arm: Arm, seed: int, steps: int, out: Path) -> Path:
    """Train a run unless it exists already, and return its directory."""
    count = arm.steps or steps
    run_dir = out / f"{name}-{count}" / f"seed-{seed}"
    if run_dir.exists():
        return run_dir
    from grpodoctor.trainer.loop import Trainer  # importing torch is slow

    unfinished = run_dir.with_name(f"unfinished-{seed}")
    trainer = Trainer(_config(arm, seed, count), unfinished)
    fault = getattr(importlib.import_module("sick_routers"), arm.fault) if arm.fault else None
    trainer.run(None if fault is None else lambda _: fault(trainer))
    unfinished.rename(run_dir)
    return run_dir


def _config(arm: Arm, seed: int, steps: int) -> TrainConfig:
    layers = [preset_of(arm.preset).settings] if arm.preset else []
    assignments = [*arm.settings, f"seed={seed}", f"steps={steps}", "threads=1", "record.depth=off"]
    return load_config(*layers, assignments=assignments)


def examine(run_dir: Path) -> RunResult:
    """Examine a run by all rules."""
    run = read_run(run_dir)
    engine = Engine(all_rules(), run.manifest)
    raised: Counter[str] = Counter()
    heldout: list[float] = []
    for record in run.steps:
        changes = engine.observe(record)
        raised.update(change.finding.code for change in changes if change.kind == "raised")
        reading = record.values.get("accuracy/heldout", record.values.get("reward/heldout"))
        if reading is not None:
            heldout.append(scalar(reading) or 0.0)
    ends = (statistics.fmean(heldout[:3]), statistics.fmean(heldout[-3:]))
    return RunResult(replay(run_dir).report.findings, raised, ends)


def table(results: dict[str, list[RunResult]]) -> Iterator[str]:
    """One row per arm."""
    yield "| arm | held out | first, by seed | findings |"
    yield "|---|---|---|---|"
    for name, runs in results.items():
        begin, end = (statistics.fmean(run.heldout[place] for run in runs) for place in (0, 1))
        firsts = ", ".join(_first(run) for run in runs)
        score = _score(ARMS[name], runs)
        findings = "; ".join(_lines(runs)) or "none"
        yield f"| {score} {name} | {begin:.2f} → {end:.2f} | {firsts} | {findings} |"


def _first(run: RunResult) -> str:
    return run.findings[0].code if run.findings else "none"


def _score(arm: Arm, runs: Sequence[RunResult]) -> str:
    """Runs judged correctly: expected code first, or no alarm in a healthy run."""
    if arm.expected:
        right = sum(_first(run) in arm.expected for run in runs)
    else:
        right = sum(all(finding.severity == "info" for finding in run.findings) for run in runs)
    return f"{right}/{len(runs)}"


def _lines(runs: Sequence[RunResult]) -> Iterator[str]:
    """Per code and severity: seeds, onsets, and how often it was raised if more than once."""
    onsets: dict[tuple[int, str], list[int]] = defaultdict(list)
    for run in runs:
        most_severe: dict[str, Finding] = {}
        for finding in run.findings:
            most_severe.setdefault(finding.code, finding)
        for code, finding in most_severe.items():
            onsets[-SEVERITIES.index(finding.severity), code].append(finding.onset_step)
    for (rank, code), steps in sorted(onsets.items()):
        again = max(run.raised[code] for run in runs)
        flaps = f" x{again}" if again > 1 else ""
        at = f"{min(steps)}" if min(steps) == max(steps) else f"{min(steps)}-{max(steps)}"
        yield f"{code} {SEVERITIES[-rank]} {len(steps)}/{len(runs)} @{at}{flaps}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    choices = [*ARMS, "healthy", "sick", "all"]
    parser.add_argument("--arms", nargs="+", default=["all"], choices=choices, metavar="ARM")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, help="folder in which runs are kept and reused")
    return parser.parse_args()


def main() -> None:
    """Train missing runs, examine all runs and print the table."""
    options = _arguments()
    groups = {"healthy": HEALTHY, "sick": SICK, "all": ARMS}
    names = [name for arm in options.arms for name in groups.get(arm, {arm: None})]
    out: Path = options.out or Path(tempfile.mkdtemp(prefix="calibrate-"))
    results: dict[str, list[RunResult]] = {}
    for name in dict.fromkeys(names):
        results[name] = []
        for seed in range(1, options.seeds + 1):
            print(f"{name}, seed {seed}", file=sys.stderr, flush=True)
            results[name].append(examine(train(name, ARMS[name], seed, options.steps, out)))
    print(*table(results), sep="\n")


if __name__ == "__main__":
    main()

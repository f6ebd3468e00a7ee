"""What the rules say about real runs of the bundled trainer, healthy ones and sick ones.

Each arm is trained with several seeds into `--out`, where a finished run is reused, so that changed
rules can be tried on the same runs within seconds. Prints a table in Markdown:

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
    """A way to train, and the codes of which one should come first."""

    settings: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    """Empty for a healthy run, of which nothing graver than a note is to be said."""
    preset: str | None = None
    steps: int | None = None
    """Where it needs another number than `--steps`."""
    plant: str | None = None
    """Which of `sick_routers` is called after every step."""


_R3 = "engine.routing_replay=R3"
_MOE = ("model.experts=8", "record.experts_every=1")


def _reward(name: str) -> str:
    return f"task.reward=sick_rewards:{name}"


HEALTHY: dict[str, Arm] = {
    "plain": Arm(),
    "sorting": Arm(("task.name=sorting",)),
    "counting": Arm(("task.name=counting",)),
    "preset-grpo": Arm(preset="grpo"),
    "preset-dapo": Arm(preset="dapo"),
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
    "temperature-0.8": Arm(("rollout.temperature=0.8",)),
    "temperature-1.2": Arm(("rollout.temperature=1.2",)),
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
    "lr-2e-3": Arm(("optimizer.learning_rate=2e-3",), ("REW002", "CLP001")),
    "over-updated": Arm((*_FOUR_EPOCHS, "optimizer.learning_rate=5e-4"), ("CLP001", "REW002")),
    "over-updated-no-clip": Arm(
        (*_FOUR_EPOCHS, *_NO_CLIP, "optimizer.learning_rate=5e-4"), ("REW002", "ENT002")
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
    "reward-noise": Arm((_reward("noise"),), ("REW001", "ENT002"), steps=150),
    "reward-length": Arm((_reward("length_bonus"),), ("LEN002", "REW003")),
    "reward-cancels": Arm((_reward("cancelling"),), ("GRP003",)),
    "hacked-verifier": Arm(
        ("task.verifier=any", "task.hedge_rate=0.1"), ("REW005", "REW003"), steps=150
    ),
    "moe-int4": Arm((*_MOE, "engine.precision=int4"), ("MOE001", "MIS001", "MIS003")),
    "moe-lr-1e-3": Arm((*_MOE, "optimizer.learning_rate=1e-3"), ("KLD001", "REW002", "CLP001")),
    "moe-lr-3e-3": Arm((*_MOE, "optimizer.learning_rate=3e-3"), ("MOE002", "REW002", "CLP001")),
    "moe-overloaded": Arm(_MOE, ("MOE003",), steps=60, plant="overloaded"),
    "moe-sharpened": Arm(_MOE, ("MOE004",), steps=60, plant="sharpened"),
    "moe-R3-lost": Arm((*_MOE, _R3), ("MOE005",), steps=60, plant="unheard"),
    "moe-R3-disobeyed": Arm((*_MOE, _R3), ("MOE005",), steps=60, plant="disobedient"),
    "too-hard": Arm(("model.warm_start_steps=0",), ("GRP002",)),
}

ARMS = HEALTHY | SICK


@dataclass(frozen=True)
class Seen:
    """What the rules said about one run."""

    findings: tuple[Finding, ...]
    """As the user is shown them: gravest first, then by onset."""
    raised: Counter[str]
    heldout: tuple[float, float]
    """Mean of the first and of the last three evaluations."""


def train(name: str, arm: Arm, seed: int, steps: int, out: Path) -> Path:
    """Train a run unless it stands there already, and return its directory."""
    count = arm.steps or steps
    run_dir = out / f"{name}-{count}" / f"seed-{seed}"
    if run_dir.exists():
        return run_dir
    from grpodoctor.trainer.loop import Trainer  # torch is not needed to examine what stands

    unfinished = run_dir.with_name(f"unfinished-{seed}")
    trainer = Trainer(_config(arm, seed, count), unfinished)
    planted = getattr(importlib.import_module("sick_routers"), arm.plant) if arm.plant else None
    trainer.run(None if planted is None else lambda _: planted(trainer))
    unfinished.rename(run_dir)
    return run_dir


def _config(arm: Arm, seed: int, steps: int) -> TrainConfig:
    layers = [preset_of(arm.preset).settings] if arm.preset else []
    own = [*arm.settings, f"seed={seed}", f"steps={steps}", "threads=1", "record.depth=off"]
    return load_config(*layers, assignments=own)


def examine(run_dir: Path) -> Seen:
    """Pass a run through the rules."""
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
    return Seen(engine.diagnosis().findings, raised, ends)


def table(seen: dict[str, list[Seen]]) -> Iterator[str]:
    """One row an arm."""
    yield "| arm | held out | first, by seed | findings |"
    yield "|---|---|---|---|"
    for name, runs in seen.items():
        begin, end = (statistics.fmean(run.heldout[place] for run in runs) for place in (0, 1))
        firsts = ", ".join(_first(run) for run in runs)
        mark = _mark(ARMS[name], runs)
        findings = "; ".join(_lines(runs)) or "none"
        yield f"| {mark} {name} | {begin:.2f} → {end:.2f} | {firsts} | {findings} |"


def _first(run: Seen) -> str:
    return run.findings[0].code if run.findings else "none"


def _mark(arm: Arm, runs: Sequence[Seen]) -> str:
    """How many runs were judged right: named first, or spared any alarm."""
    if arm.expected:
        right = sum(_first(run) in arm.expected for run in runs)
    else:
        right = sum(all(each.severity == "info" for each in run.findings) for run in runs)
    return f"{right}/{len(runs)}"


def _lines(runs: Sequence[Seen]) -> Iterator[str]:
    """Each code and severity: seeds, onsets, and how often it was raised if more than once."""
    onsets: dict[tuple[int, str], list[int]] = defaultdict(list)
    for run in runs:
        gravest: dict[str, Finding] = {}
        for finding in run.findings:
            gravest.setdefault(finding.code, finding)
        for code, finding in gravest.items():
            onsets[-SEVERITIES.index(finding.severity), code].append(finding.onset_step)
    for (rank, code), found in sorted(onsets.items()):
        again = max(run.raised[code] for run in runs)
        flaps = f" x{again}" if again > 1 else ""
        at = f"{min(found)}" if min(found) == max(found) else f"{min(found)}-{max(found)}"
        yield f"{code} {SEVERITIES[-rank]} {len(found)}/{len(runs)} @{at}{flaps}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    choices = [*ARMS, "healthy", "sick", "all"]
    parser.add_argument("--arms", nargs="+", default=["all"], choices=choices, metavar="ARM")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, help="where runs are kept and reused")
    return parser.parse_args()


def main() -> None:
    """Train what is missing, examine all, print the table."""
    options = _arguments()
    groups = {"healthy": HEALTHY, "sick": SICK, "all": ARMS}
    names = [name for each in options.arms for name in groups.get(each, {each: None})]
    out: Path = options.out or Path(tempfile.mkdtemp(prefix="calibrate-"))
    seen: dict[str, list[Seen]] = {}
    for name in dict.fromkeys(names):
        seen[name] = []
        for seed in range(1, options.seeds + 1):
            print(f"{name}, seed {seed}", file=sys.stderr, flush=True)
            seen[name].append(examine(train(name, ARMS[name], seed, options.steps, out)))
    print(*table(seen), sep="\n")


if __name__ == "__main__":
    main()

"""Write simulated runs in the formats of the frameworks, and let `check` examine them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Protocol

from grpodoctor.monitor.diagnosis.past_faults import EARLIER
from grpodoctor.monitor.replay import replay
from tests.benchmarks.planted_runs import (
    engine_causes,
    healthy_runs,
    policy_causes,
    reward_causes,
)
from tests.benchmarks.planted_runs.parts import draw_sizes
from tests.benchmarks.planted_runs.plants import CAUSES, HEALTHY, Plant
from tests.benchmarks.planted_runs.simulation import Simulation
from tests.frameworks.generated_logs import WRITERS

_REGISTERED = (engine_causes, healthy_runs, policy_causes, reward_causes)
"""Modules that register their plants when they are imported."""

_CODE = re.compile(r"\b[A-Z]{3}\d{3}\b")
_EARLIER = re.compile(rf" {EARLIER.capitalize()}: .*?\.(?= [A-Z]|$)")
"""The sentence about what has no known link to the verdict's fault: it does not name the cause."""
_MISMATCH = frozenset((
    "logprob_diff", "logprob_diff_max", "prob_diff", "prob_diff_max", "far_moved", "pearson",
    "engine_k1", "engine_k2", "engine_kl", "engine_chi2", "weight",
))  # fmt: skip
_ALWAYS_COMPARED = ("prime-rl", "tinker-cookbook")
"""Formats whose trainers always compare the engines."""
_GROUPS: Mapping[str, frozenset[str]] = {
    "kl": frozenset({"kl"}),
    "heldout": frozenset({"heldout"}),
    "mismatch": _MISMATCH,
    "staleness": frozenset({"staleness", "max_staleness"}),
    "tools": frozenset({"tool_calls", "tool_failures"}),
    "turns": frozenset({"turns"}),
    "experts": frozenset({"load_violation", "aux_loss", "replay_fallback"}),
    "errors": frozenset({"errors"}),
    "aborted": frozenset({"aborted"}),
    "actions": frozenset({"invalid_actions"}),
    "filtered": frozenset({"generated_per_kept"}),
}
"""Quantities that a run measures only if its settings ask for them."""


@dataclass(frozen=True)
class SimulatedRun:
    """A simulated run, as a writer of logs sees it."""

    steps: int
    limit: int
    prompts: int
    group: int
    rows: Sequence[Mapping[str, float]]

    def is_evaluated(self, step: int) -> bool:
        """Whether the step has a held-out score."""
        return "heldout" in self.rows[step - 1]

    def at(self, step: int) -> Mapping[str, float]:
        """The quantities of a step."""
        return self.rows[step - 1]


class Planted(Protocol):
    """A planted cause, or a healthy run."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def codes(self) -> tuple[str, ...]:
        """Rules that are accepted as its name; empty for a healthy run."""


@dataclass(frozen=True)
class Answer:
    """What the first line of `check` says about one run."""

    plant: Planted
    layout: str
    line: str
    kind: str
    first: frozenset[str]
    """Codes on the first line."""
    alarms: tuple[str, ...]
    """Codes of active warnings in the report."""
    findings: tuple[str, ...] = field(default=())
    """All codes, with their severity."""

    @property
    def is_named_first(self) -> bool:
        """Whether the first line names the cause, or a healthy run has no alarm."""
        if not self.plant.codes:
            return self.kind != "sick" and not self.alarms
        return not self.first.isdisjoint(self.plant.codes)

    @property
    def is_named(self) -> bool:
        """Whether any active warning names the cause."""
        return self.is_named_first or not set(self.alarms).isdisjoint(self.plant.codes)


class _Recording(dict[str, float]):
    """Quantities that remember which of them were read."""

    def __init__(self, values: Mapping[str, float]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> float:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: float | None = None) -> float:  # type: ignore[override]
        """The quantity."""
        self.read.add(name)
        return super().get(name, default)  # type: ignore[return-value]


def quantities_read(
    write: Callable[[SimulatedRun, Path], Path], run: SimulatedRun
) -> frozenset[str]:
    """The quantities of a run that the writer of a format reads."""
    recordings = [_Recording(row) for row in run.rows]
    with tempfile.TemporaryDirectory() as directory:
        write(replace(run, rows=recordings), Path(directory))
    return frozenset().union(*(recording.read for recording in recordings))


@lru_cache(maxsize=1)
def logged_quantities() -> Mapping[str, frozenset[str]]:
    """For each format, the quantities that its writer logs."""
    random = Random("everything")
    sizes = draw_sizes(random)
    run = Simulation(sizes, "everything")
    run.rewards.form_weight = 0.2
    run.task.calls = 1.0
    rows = [run.step(number) for number in range(1, 21)]
    simulated = SimulatedRun(len(rows), sizes.limit, sizes.prompts, sizes.group, rows)
    return {layout: quantities_read(write, simulated) for layout, (_, write) in WRITERS.items()}


def layouts_with_evidence(plant: Plant) -> list[str]:
    """The formats whose log shows a cause at all."""
    return [
        layout
        for layout, names in logged_quantities().items()
        if layout not in plant.without and any(needed <= names for needed in plant.evidence)
    ]


def simulate(plant: Plant, layout: str, seed: str) -> SimulatedRun:
    """Simulate a run of a plant, with the quantities that a format's log may have."""
    random = Random(seed)
    sizes = draw_sizes(random, *plant.steps)
    sizes.logged |= plant.logged
    sizes.optional |= plant.optional
    if plant.prepare:
        plant.prepare(random, sizes)
    needed = frozenset().union(*plant.evidence) & logged_quantities()[layout]
    run = Simulation(sizes, seed)
    change = plant.plan(random, run)
    run.start = run.policy.copy()
    rows = []
    for number in range(1, sizes.steps + 1):
        if change:
            change(run, number)
        rows.append(run.step(number))
    hidden = {
        name
        for group, names in _GROUPS.items()
        if group not in sizes.logged | sizes.optional and needed.isdisjoint(names)
        for name in names
    }
    if layout in _ALWAYS_COMPARED:
        hidden -= _MISMATCH
    shown = [
        {
            name: value
            for name, value in row.items()
            if name not in hidden and _has(name, sizes.optional)
        }
        for row in rows
    ]
    return SimulatedRun(sizes.steps, sizes.limit, sizes.prompts, sizes.group, shown)


def _has(name: str, optional: set[str]) -> bool:
    """Whether a run logs a part of the reward: those with one part do not."""
    return not name.startswith("component/") or "parts" in optional


def examine(plant: Plant, layout: str, seed: str, directory: Path) -> Answer:
    """Simulate, write and check one run."""
    path = WRITERS[layout][1](simulate(plant, layout, seed), directory)
    return answer_of(plant, layout, path)


def answer_of(plant: Planted, layout: str, path: Path) -> Answer:
    """What `check` says about the log of a planted run."""
    report = replay(path).report
    verdict = report.diagnosis.verdict
    findings = report.diagnosis.findings
    alarms = dict.fromkeys(f.code for f in findings if f.active and f.severity != "info")
    named_as_cause = _EARLIER.sub("", verdict.line)
    codes = set(_CODE.findall(named_as_cause)) | ({verdict.code} if verdict.code else set())
    if verdict.kind == "sick":
        codes.add(report.diagnosis.problems[0].present.code)
    named = tuple(f"{f.code}:{f.severity}{'' if f.active else ':past'}" for f in findings)
    return Answer(plant, layout, verdict.line, verdict.kind, frozenset(codes), tuple(alarms), named)


def cases(seed: int, only: Sequence[str], per_plant: int) -> Iterator[tuple[Plant, str, str]]:
    """Plants with the formats that are drawn for them and the seeds of their runs.

    Args:
        seed: of the examination.
        only: parts of names of plants or formats; all if empty.
        per_plant: formats of each plant; 0 for all of them.
    """
    for name, plant in {**CAUSES, **HEALTHY}.items():
        layouts = layouts_with_evidence(plant)
        random = Random(f"{seed}/{name}/formats")
        chosen = random.sample(layouts, min(per_plant or len(layouts), len(layouts)))
        for layout in chosen:
            if not only or any(part in f"{name} {layout}" for part in only):
                yield plant, layout, f"{seed}/{name}/{layout}"

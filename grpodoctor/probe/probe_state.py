"""The state of a running probe: its pairs, their results so far, and the result on disk."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from grpodoctor.errors import GrpodoctorError, RunError
from grpodoctor.probe.contract import Processing, Sampling
from grpodoctor.probe.controls.run_controls import SampledRollouts
from grpodoctor.probe.engines.engine_facts import EngineFacts
from grpodoctor.probe.engines.store import RESULT
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.inputs.plan import ProbePlan
from grpodoctor.probe.results.results import Cell, Comparison, ProbeResult
from grpodoctor.probe.results.results_json import read_result, write_result

_NOT_REACHED = "the probe ended before this pair"


@dataclass(slots=True)
class Measured:
    """The measurement of a pair, for its controls and attribution."""

    rollouts: SampledRollouts
    scored: Path
    comparison: Comparison


@dataclass(slots=True)
class Pair:
    """One sampler and one learner at one length, with the cell of its result."""

    sampler: EngineSpec
    learner: EngineSpec
    sampling: Sampling
    cell: Cell
    rollouts: SampledRollouts | None = None
    measured: Measured | None = None

    @property
    def processing(self) -> Processing:
        """As in trainers, the learner scores at the sampling temperature over all tokens."""
        return Processing(temperature=self.sampling.temperature)

    @property
    def is_ready(self) -> bool:
        """Whether it was sampled and has not failed."""
        return self.rollouts is not None and self.cell.status != "failed"

    @property
    def is_open(self) -> bool:
        """Whether this probe measured it and it has not failed since."""
        return self.measured is not None and self.cell.status == "done"

    def update(self, **changes: Any) -> None:
        """Change fields of the cell."""
        self.cell = replace(self.cell, **changes)


@dataclass
class ProbeState:
    """All pairs of a probe.

    Args:
        plan: engines, sampling settings and prompts.
        folder: the probe's folder, which receives the result.
    """

    plan: ProbePlan
    folder: Path
    notes: list[str] = field(default_factory=list)
    """Remarks in the result."""
    prompts: int = 0
    """Number of prompts in use."""
    facts: dict[str, EngineFacts] = field(default_factory=dict)
    """Facts of the engines that ran, by label."""

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self.labels = labels_of((*self.plan.samplers, *self.plan.learners))
        self.pairs = [
            Pair(sampler, learner, sampling, self._empty(sampler, learner, sampling))
            for sampling in self.plan.sampling.lengths()
            for sampler in self.plan.samplers
            for learner in self.plan.learners
        ]

    def _empty(self, sampler: EngineSpec, learner: EngineSpec, sampling: Sampling) -> Cell:
        return Cell(
            sampler=self.label(sampler),
            learner=self.label(learner),
            max_tokens=sampling.max_tokens,
            status="not_run",
            reason=_NOT_REACHED,
        )

    def label(self, spec: EngineSpec) -> str:
        """The engine's name in this probe."""
        return self.labels[spec.key]

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return time.monotonic() - self._began

    @property
    def finished(self) -> int:
        """Number of pairs that are measured or failed."""
        return sum(pair.cell.status != "not_run" for pair in self.pairs)

    def note(self, *notes: str) -> None:
        """Add notes to the result, each once."""
        self.notes += [each for each in dict.fromkeys(notes) if each not in self.notes]

    def fail(self, pair: Pair, error: GrpodoctorError) -> None:
        """Mark a pair as failed."""
        pair.update(status="failed", reason=str(error))
        self.write()

    def take_first_round(self, first: ProbeState) -> None:
        """Keep the figures of a first round for pairs that are not measured later."""
        cells = {(pair.sampler.key, pair.learner.key): pair.cell for pair in first.pairs}
        for pair in self.pairs:
            cell = cells[pair.sampler.key, pair.learner.key]
            if cell.comparison is not None:
                what = f"The first {cell.comparison.responses:,} responses alone: {cell.verdict}"
                pair.update(
                    comparison=cell.comparison,
                    verdict=what,
                    gap=cell.gap,
                    noise=cell.noise,
                    noise_is_usual=cell.noise_is_usual,
                )
        self.facts |= first.facts

    def end_early(self, why: str) -> None:
        """Store the reason in all pairs that were not run."""
        for pair in self.pairs:
            if pair.cell.status == "not_run":
                pair.update(reason=why)

    def result(self) -> ProbeResult:
        """The result so far."""
        return ProbeResult(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            settings=self._settings(),
            engines=dict(self.facts),
            cells=tuple(pair.cell for pair in self.pairs),
            seconds=self.seconds,
            notes=tuple(self.notes),
        )

    def _settings(self) -> dict[str, Any]:
        """The settings in the result; a record has only a temperature."""
        sampling = self.plan.sampling
        stale = str(self.plan.stale) if self.plan.stale else None
        common = {"temperature": sampling.temperature, "seed": sampling.seed, "stale": stale}
        if all(spec.is_record for spec in self.plan.samplers):
            return common
        return {
            "prompts": self.prompts,
            "from": str(self.plan.prompts or "built-in"),
            "samples": sampling.samples,
            **sampling.model_dump(exclude_defaults=True),
            "max_tokens": list(sampling.max_tokens),
            **common,
        }

    def write(self) -> ProbeResult:
        """Replace the result on disk."""
        result = self.result()
        write_result(result, self.folder / RESULT)
        return result

    def keep(self, pair: Pair, path: Path) -> None:
        """Store a finished pair for the next probe in this folder."""
        path.parent.mkdir(exist_ok=True)
        write_result(replace(self.result(), cells=(pair.cell,), notes=()), path)

    def take_kept(self, pair: Pair, path: Path) -> bool:
        """Use the result of an earlier probe in this folder; whether there is one."""
        try:
            kept = read_result(path) if path.exists() else None
        except RunError:
            return False  # damaged: measure again
        if kept is None or len(kept.cells) != 1:
            return False
        pair.cell = replace(kept.cells[0], sampler=pair.cell.sampler, learner=pair.cell.learner)
        return True


def labels_of(specs: Sequence[EngineSpec]) -> dict[str, str]:
    """A unique label for each spec, by its key; longer where short ones are equal."""
    distinct = list({spec.key: spec for spec in specs}.values())
    labels = {spec.key: spec.label for spec in distinct}
    for longer in (_with_model, _with_python, _with_key):
        counts = Counter(labels.values())
        for spec in distinct:
            if counts[labels[spec.key]] > 1:
                labels[spec.key] = longer(spec)
    return labels


def _with_model(spec: EngineSpec) -> str:
    _, question, options = spec.label.partition("?")
    return f"{spec.engine}:{spec.model}{question}{options}"


def _with_python(spec: EngineSpec) -> str:
    return f"{_with_model(spec)} in {spec.launcher or spec.python or 'this Python'}"


def _with_key(spec: EngineSpec) -> str:
    return f"{_with_python(spec)} #{spec.key[:6]}"

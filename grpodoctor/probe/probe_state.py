"""The book of a probe: its pairs, what became of them, and what is on disk of it."""

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

_NOT_REACHED = "the probe ended before it came to this pair"


@dataclass(slots=True)
class Measured:
    """What the measurement of a pair has left for what comes after it."""

    rollouts: SampledRollouts
    scored: Path
    comparison: Comparison


@dataclass(slots=True)
class Pair:
    """One cell while it is made."""

    sampler: EngineSpec
    learner: EngineSpec
    sampling: Sampling
    cell: Cell
    rollouts: SampledRollouts | None = None
    measured: Measured | None = None

    @property
    def processing(self) -> Processing:
        """Under which the learner scores: at the sampling temperature and whole, as trainers do."""
        return Processing(temperature=self.sampling.temperature)

    @property
    def is_ready(self) -> bool:
        """Whether it was sampled, and nothing has failed."""
        return self.rollouts is not None and self.cell.status != "failed"

    @property
    def is_open(self) -> bool:
        """Whether it was measured by this probe and has not failed since."""
        return self.measured is not None and self.cell.status == "done"

    def update(self, **changes: Any) -> None:
        """Change what the cell says."""
        self.cell = replace(self.cell, **changes)


@dataclass
class ProbeState:
    """All pairs of a probe.

    Args:
        plan: what is to be done.
        folder: where the result stands.
    """

    plan: ProbePlan
    folder: Path
    notes: list[str] = field(default_factory=list)
    """For the reader of the result."""
    prompts: int = 0
    """How many are used."""
    facts: dict[str, EngineFacts] = field(default_factory=dict)
    """Of the engines that were started, by label."""

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
        """What an engine is called in this probe."""
        return self.labels[spec.key]

    @property
    def finished(self) -> int:
        """Pairs of which nothing more is to come, or that are measured at least."""
        return sum(pair.cell.status != "not_run" for pair in self.pairs)

    def note(self, *notes: str) -> None:
        """Tell the reader something once."""
        self.notes += [each for each in dict.fromkeys(notes) if each not in self.notes]

    def fail(self, pair: Pair, error: GrpodoctorError) -> None:
        """A pair has failed, and others have not."""
        pair.update(status="failed", reason=str(error))
        self.write()

    def end_early(self, why: str) -> None:
        """Say of what was not reached why that is."""
        for pair in self.pairs:
            if pair.cell.status == "not_run":
                pair.update(reason=why)

    def result(self) -> ProbeResult:
        """All that there is to say until now."""
        return ProbeResult(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            settings=self._settings(),
            engines=dict(self.facts),
            cells=tuple(pair.cell for pair in self.pairs),
            seconds=time.monotonic() - self._began,
            notes=tuple(self.notes),
        )

    def _settings(self) -> dict[str, Any]:
        """What was asked for; of a record it is no more than the temperature."""
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
        """Write a finished pair where the next probe into the folder finds it."""
        path.parent.mkdir(exist_ok=True)
        write_result(replace(self.result(), cells=(pair.cell,), notes=()), path)

    def take_kept(self, pair: Pair, path: Path) -> bool:
        """Take over what an earlier probe has finished; whether there is such a thing."""
        try:
            kept = read_result(path) if path.exists() else None
        except RunError:
            return False  # damaged: it is made again
        if kept is None or len(kept.cells) != 1:
            return False
        pair.cell = replace(kept.cells[0], sampler=pair.cell.sampler, learner=pair.cell.learner)
        return True


def labels_of(specs: Sequence[EngineSpec]) -> dict[str, str]:
    """A label for each spec by its key, no two the same: longer where short ones are."""
    distinct = list({spec.key: spec for spec in specs}.values())
    labels = {spec.key: spec.label for spec in distinct}
    for longer in (_with_model, _with_python, _with_key):
        often = Counter(labels.values())
        for spec in distinct:
            if often[labels[spec.key]] > 1:
                labels[spec.key] = longer(spec)
    return labels


def _with_model(spec: EngineSpec) -> str:
    _, question, options = spec.label.partition("?")
    return f"{spec.engine}:{spec.model}{question}{options}"


def _with_python(spec: EngineSpec) -> str:
    return f"{_with_model(spec)} in {spec.launcher or spec.python or 'this Python'}"


def _with_key(spec: EngineSpec) -> str:
    return f"{_with_python(spec)} #{spec.key[:6]}"

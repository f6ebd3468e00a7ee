"""Measures a pair as a probe does, up to the case that attribution is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grpodoctor.probe.attribution.case import Case
from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.contract import Processing, Sampling
from grpodoctor.probe.engines.engine_runner import EngineRunner
from grpodoctor.probe.engines.jobs import SampleJob, ScoreJob, TokenizeJob, Want
from grpodoctor.probe.inputs.checksums import checkpoint_of, compare_checkpoints
from grpodoctor.probe.inputs.engine_spec import EngineSpec

FAULTY = Path(__file__).with_name("faulty.py")


def faulty(model: Path, fault: str, **options: Any) -> EngineSpec:
    """Transformers with a fault."""
    return EngineSpec.of(
        "program", str(FAULTY), {"model": str(model), "fault": fault, "threads": 1, **options}
    )


def plain(model: Path, **options: Any) -> EngineSpec:
    """Transformers."""
    return EngineSpec.of("transformers", str(model), {"threads": 1, **options})


def measured(
    runner: EngineRunner,
    sampler: EngineSpec,
    learner: EngineSpec,
    sampling: Sampling,
    *,
    processing: Processing | None = None,
    stale: Path | None = None,
    experts: bool = False,
) -> Case:
    """Sample with one engine, score with the other, compare."""
    processing = processing or Processing(temperature=sampling.temperature)
    more: tuple[Want, ...] = ("experts",) if experts else ()
    sample = SampleJob(sampling=sampling, want=more)
    rollouts, _ = runner.run(sampler, [sample, TokenizeJob()])
    want: tuple[Want, ...] = ("entropy", "ranks", "temperatures", *more)
    score = ScoreJob(rollouts=rollouts, processing=processing, want=want)
    scored, _ = runner.run(learner, [score, TokenizeJob()])
    return Case(
        sampler=sampler,
        learner=learner,
        sampling=sampling,
        prompts=runner.prompts,
        rollouts=rollouts,
        scored=scored,
        processing=processing,
        comparison=compare(rollouts, scored),
        sampler_facts=runner.facts(sampler),
        learner_facts=runner.facts(learner),
        differing=_differing(sampler, learner),
        stale=stale,
    )


def _differing(sampler: EngineSpec, learner: EngineSpec) -> tuple[str, ...] | None:
    if "program" in (sampler.engine, learner.engine):
        return None
    one, other = checkpoint_of(sampler), checkpoint_of(learner)
    return None if one is None or other is None else compare_checkpoints(one, other).differing

"""Runs a probe: every sampler samples, every learner scores, every pair is compared and explained.

Engines are loaded as rarely as possible: one load of a sampler samples all lengths and scores its
own tokens, one load of a learner scores the responses of all samplers. All measurements come before
attribution, so that a spent time budget leaves figures for as many pairs as possible. An engine
that fails affects only its own pairs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from grpodoctor.errors import DataError, EngineError, GrpodoctorError, RunError
from grpodoctor.probe.attribution.case import Case
from grpodoctor.probe.attribution.investigate import investigate
from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.comparison.experts import compare_experts
from grpodoctor.probe.contract import Processing
from grpodoctor.probe.controls.expert_replay import (
    has_experts,
    replay_job,
    replayed_of,
)
from grpodoctor.probe.controls.run_controls import (
    SampledRollouts,
    Weights,
    repeat_of,
    reported_processing,
    self_scoring_of,
    stale_of,
    stale_spec,
)
from grpodoctor.probe.engines.commands import check_start, model_of
from grpodoctor.probe.engines.engine_facts import EngineFacts
from grpodoctor.probe.engines.engine_run import EngineProgress
from grpodoctor.probe.engines.engine_runner import EngineRunner, JobResult
from grpodoctor.probe.engines.jobs import BudgetSpentError, SampleJob, ScoreJob, TokenizeJob, Want
from grpodoctor.probe.engines.output_validation import read_ids
from grpodoctor.probe.engines.store import content_key, fingerprint, read_json, write_json
from grpodoctor.probe.inputs.checksums import local_model
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.inputs.plan import ProbePlan
from grpodoctor.probe.inputs.prompts import Prompt, read_prompts, shown
from grpodoctor.probe.inputs.prompts_builtin import builtin_prompts, has_chat_template
from grpodoctor.probe.probe_state import Measured, Pair, ProbeState
from grpodoctor.probe.results.results import ProbeResult
from grpodoctor.probe.results.token_text import with_token_texts
from grpodoctor.probe.severity import measured_verdict

_CONTROL_RESPONSES = 256
"""Responses that controls use: one shard."""
_MAX_REMEDIES = 6
_RECORD = "recorded values are always the same"
_COLUMNS: tuple[Want, ...] = ("entropy", "ranks", "temperatures")
"""Columns that attribution needs; requested during the measurement to save a load."""


class ProbeListener(Protocol):
    """Receives the progress of a probe."""

    def stage(self, what: str, done: int, total: int) -> None:
        """Called at each stage, with the number of measured pairs and of all pairs."""

    def engine(self, progress: EngineProgress) -> None:
        """Called several times a second while an engine runs."""


def probe(plan: ProbePlan, folder: Path, listener: ProbeListener) -> ProbeResult:
    """Run a plan and store everything in `folder`; an interrupted probe resumes there.

    Raises:
        RunError: if the folder is in use or cannot be written to.
        DataError: if the prompts cannot be read.
    """
    given = read_prompts(plan.prompts, plan.limit) if plan.prompts is not None else []
    deadline = time.monotonic() + plan.budget if plan.budget else float("inf")
    with EngineRunner(folder, given, deadline=deadline, watch=listener.engine) as runner:
        if plan.prompts is None:
            runner.use_prompts(_built_in(plan, runner.store.folder))
        run = _ProbeRun(plan, runner, listener)
        try:
            run.check_engines()
            run.sample()
            run.measure()
            run.control()
            run.attribute()
        except BudgetSpentError:
            run.state.note("the time budget was spent; run the probe again with the same --output")
            run.state.end_early("the time budget was spent (--budget)")
        return run.state.write()


def _built_in(plan: ProbePlan, folder: Path) -> list[Prompt]:
    """Built-in prompts; half of them are conversations if all models have a chat template."""
    models = sorted({spec.model for spec in (*plan.samplers, *plan.learners)})
    path = folder / "prompts" / f"{content_key(models)}.chat.json"
    # Stored, because a model that is downloaded during the probe may have a template.
    chat = read_json(path).get("chat", all(map(has_chat_template, models)))
    write_json(path, {"chat": chat})
    return builtin_prompts(plan.limit, chat=chat is True, seed=plan.sampling.seed)


class _ProbeRun:
    """One run of a probe."""

    def __init__(self, plan: ProbePlan, runner: EngineRunner, listener: ProbeListener) -> None:
        self.plan, self.runner, self.listener = plan, runner, listener
        self.state = ProbeState(plan, runner.store.folder, prompts=len(runner.prompts))
        self.weights = Weights()

    def check_engines(self) -> None:
        """Fail engines that cannot start, before others run for minutes."""
        for spec in (*self.plan.samplers, *self.plan.learners):
            try:
                check_start(spec)
            except EngineError as error:
                for pair in self.state.pairs:
                    is_used = spec.key in (pair.sampler.key, pair.learner.key)
                    if is_used and pair.cell.status != "failed":
                        self.state.fail(pair, error)

    def sample(self) -> None:
        """Let every sampler sample; start again if prompts are too long for one of them."""
        while not all(self._sample(sampler) for sampler in self.plan.samplers):
            pass

    def _sample(self, sampler: EngineSpec) -> bool:
        """Let one sampler sample and score its own tokens; whether all prompts fit."""
        pairs = [pair for pair in self.state.pairs if pair.sampler.key == sampler.key]
        if all(pair.cell.status == "failed" for pair in pairs):
            return True
        try:
            return self._sample_all_lengths(sampler, pairs)
        except DataError as error:
            for pair in pairs:
                self.state.fail(pair, error)
            return True

    def _sample_all_lengths(self, sampler: EngineSpec, pairs: Sequence[Pair]) -> bool:
        self._stage(f"{self.state.label(sampler)} samples")
        (tokenized,) = self.runner.finished(sampler, [TokenizeJob()])
        if tokenized and self._drop_long_prompts(sampler, tokenized):  # known from an earlier probe
            return False
        want = self._wants(sampler)
        jobs = [SampleJob(sampling=each, want=want) for each in self.plan.sampling.lengths()]
        own_scores = [
            ScoreJob(rollouts=self.runner.where(sampler, job))
            for job in jobs
            # At other settings the processing depends on the facts, known only after the load.
            if Processing.of(job.sampling) == Processing() and not sampler.is_record
        ]
        ids, *results = self.runner.attempt(sampler, [TokenizeJob(), *jobs, *own_scores])
        if isinstance(ids, Path) and self._drop_long_prompts(sampler, ids):
            return False
        for job, result in zip(jobs, results, strict=False):
            own_pairs = [pair for pair in pairs if pair.sampling == job.sampling]
            self._note_sampled(sampler, job, result, own_pairs)
        return True

    def _drop_long_prompts(self, sampler: EngineSpec, ids: Path) -> bool:
        """Drop prompts that do not fit the sampler's context; whether there were any.

        They are dropped with a note instead of refused: a trainer's data loader filters them too,
        and a comparison over hundreds of prompts loses nothing. All engines use the same prompts.

        Raises:
            DataError: if no prompt is left.
        """
        # A record has no context length: its responses did fit.
        context = self.runner.facts(sampler).context or sys.maxsize
        # Room for two tokens: one to sample, and one that vLLM samples whenever it scores.
        fits = [len(prompt) + 2 <= context for prompt in read_ids(ids / "ids.json")]
        if all(fits):
            return False
        what = (
            f"{fits.count(False)} of {len(fits)} prompts are longer than the context of "
            f"{self.state.label(sampler)}, {context} tokens"
        )
        if not any(fits):
            raise DataError(
                what,
                where=str(self.plan.prompts or "built-in prompts"),
                remedy="pass shorter prompts, or raise the context (vLLM: max_model_len)",
            )
        self.state.note(f"{what}; they were dropped")
        prompts = zip(self.runner.prompts, fits, strict=True)
        self.runner.use_prompts([prompt for prompt, is_fitting in prompts if is_fitting])
        self.state.prompts = len(self.runner.prompts)
        return True

    def _wants(self, spec: EngineSpec) -> tuple[Want, ...]:
        routed = self.plan.experts and self.weights.has_routers(model_of(spec)[0])
        return ("entropy", "experts") if routed else ("entropy",)

    def _note_sampled(
        self, sampler: EngineSpec, job: SampleJob, result: JobResult, pairs: Sequence[Pair]
    ) -> None:
        if isinstance(result, EngineError):
            for pair in pairs:
                self.state.fail(pair, result)
            return
        facts = self._facts(sampler)
        rescored: JobResult = EngineError(_RECORD)
        if not sampler.is_record:
            own = ScoreJob(rollouts=result, processing=reported_processing(job.sampling, facts))
            (rescored,) = self.runner.attempt(sampler, [own])
        part = self.runner.part_of(result, _CONTROL_RESPONSES)
        for pair in pairs:
            pair.rollouts = SampledRollouts(job.sampling, result, part, facts, rescored)

    def _facts(self, spec: EngineSpec) -> EngineFacts:
        facts = self.runner.facts(spec)
        self.state.facts[self.state.label(spec)] = facts
        return facts

    def measure(self) -> None:
        """Let every learner score the sampled responses, except for finished pairs."""
        for learner in self.plan.learners:
            pairs = [
                pair
                for pair in self.state.pairs
                if pair.learner.key == learner.key and pair.is_ready and not self._is_kept(pair)
            ]
            if pairs:
                self._measure(learner, pairs)

    def _is_kept(self, pair: Pair) -> bool:
        kept = self.state.take_kept(pair, self._cell_path(pair))
        if kept:
            self._facts(pair.learner)
        return kept

    def _measure(self, learner: EngineSpec, pairs: Sequence[Pair]) -> None:
        """Let a learner score the responses of all samplers; each pair is compared at once."""
        self._stage(f"{self.state.label(learner)} scores")
        jobs = [job for pair in pairs for job in self._score_jobs(pair)]
        attribution = [self._attribution_job(pair) for pair in pairs if self.plan.attribution]
        routed = [pair for pair in pairs if self._is_replayed(pair)]
        replays = [replay_job(_sampled(pair).part, pair.processing) for pair in routed]
        try:
            results = self.runner.attempt(learner, [*jobs, *attribution, TokenizeJob(), *replays])
        except BudgetSpentError:
            self._compare_all(pairs, self.runner.finished(learner, jobs))
            self._replay_all(routed, self.runner.finished(learner, replays))
            raise
        self._compare_all(pairs, results)
        self._replay_all(routed, results[len(results) - len(routed) :])

    def _is_replayed(self, pair: Pair) -> bool:
        """Whether the learner also scores with the sampler's experts."""
        can_replay = pair.learner.kind.can_replay and "experts" in self._wants(pair.learner)
        return can_replay and has_experts(_sampled(pair).part)

    def _replay_all(self, pairs: Sequence[Pair], results: Sequence[JobResult | None]) -> None:
        """Add the gap with the sampler's experts; a pair does not fail without it."""
        for pair, result in zip(pairs, results, strict=True):
            if isinstance(result, EngineError):
                self.state.note(f"{pair.cell.learner} did not replay experts: {result.what}")
            elif result is not None and pair.is_open:
                self._guarded(pair, self._note_replayed, result)
        self.state.write()

    def _note_replayed(self, pair: Pair, replayed: Path) -> None:
        if pair.measured is not None:
            free = self.runner.part_of(pair.measured.scored, _CONTROL_RESPONSES)
            pair.update(replayed=replayed_of(pair.measured.rollouts.part, free, replayed))

    def _score_jobs(self, pair: Pair) -> tuple[ScoreJob, ScoreJob]:
        """The measurement, and its first shards in reverse order, for a control."""
        rollouts, want = _sampled(pair), self._wants(pair.learner)
        return (
            ScoreJob(rollouts=rollouts.path, processing=pair.processing, want=want),
            ScoreJob(rollouts=rollouts.part, processing=pair.processing, backwards=True),
        )

    def _attribution_job(self, pair: Pair) -> ScoreJob:
        """The learner's scores that attribution needs first; the same load computes them."""
        routed = "experts" in self._wants(pair.sampler)
        want: tuple[Want, ...] = (*_COLUMNS, "experts") if routed else _COLUMNS
        part = _sampled(pair).part
        return ScoreJob(rollouts=part, processing=pair.processing, want=want)

    def _compare_all(self, pairs: Sequence[Pair], results: Sequence[JobResult | None]) -> None:
        """Compare the scores, two results per pair; None where the time was spent."""
        for number, pair in enumerate(pairs):
            scored, backwards = results[2 * number : 2 * number + 2]
            if isinstance(scored, EngineError):
                self.state.fail(pair, self._other_vocabulary(pair) or scored)
            elif scored is not None:
                self._guarded(pair, self._compare, scored, backwards)

    def _compare(self, pair: Pair, scored: Path, backwards: JobResult | None) -> None:
        self._stage(f"comparing {pair.cell.sampler} with {pair.cell.learner}")
        rollouts, facts = _sampled(pair), self._facts(pair.learner)
        prompts, seed = shown(self._prompts(pair)), self.plan.sampling.seed
        comparison = compare(rollouts.path, scored, prompts=prompts, seed=seed)
        comparison = with_token_texts(comparison, (pair.learner.model, pair.sampler.model))
        part = self.runner.part_of(scored, _CONTROL_RESPONSES)
        again = EngineError(_RECORD) if pair.learner.is_record else backwards
        controls = (
            self_scoring_of(rollouts),
            repeat_of(part, again, facts),
            self.weights.control(pair.sampler, pair.learner),
        )
        pair.measured = Measured(rollouts, scored, comparison)
        verdict = measured_verdict(comparison)
        pair.update(
            status="done", reason="", comparison=comparison, controls=controls, verdict=verdict
        )
        self._note_vocabularies(pair, rollouts.facts, facts)
        self._stage(f"{self.state.label(pair.learner)} scores")  # one more pair is done
        self.state.write()

    def _prompts(self, pair: Pair) -> tuple[Prompt, ...]:
        """The prompts of a pair's responses; a record has its own."""
        return self.runner.prompts_of(_sampled(pair).path)

    def _other_vocabulary(self, pair: Pair) -> EngineError | None:
        """The error of a learner whose vocabulary is too small, instead of its own error."""
        try:
            vocab_size = self.runner.facts(pair.learner).vocab_size
            largest = _sampled(pair).largest_id()
        except GrpodoctorError:
            return None
        if largest < vocab_size or not vocab_size:
            return None
        return EngineError(
            f"{pair.cell.sampler} sampled the token id {largest}, but {pair.cell.learner} has only "
            f"{vocab_size} tokens: their vocabularies differ",
            remedy="give both engines the same model",
        )

    def _note_vocabularies(self, pair: Pair, sampler: EngineFacts, learner: EngineFacts) -> None:
        if 0 != sampler.vocab_size != learner.vocab_size != 0:
            self.state.note(
                f"{pair.cell.sampler} has {sampler.vocab_size} tokens and {pair.cell.learner} "
                f"{learner.vocab_size}: one of them pads its embedding, or the models differ"
            )

    def control(self) -> None:
        """Let learners with deliberately wrong weights score the same responses."""
        for learner in self.plan.learners:
            pairs = [pair for pair in self._open() if pair.learner.key == learner.key]
            if pairs:
                self._control(learner, pairs)

    def _control(self, learner: EngineSpec, pairs: Sequence[Pair]) -> None:
        self._stage(f"{self.state.label(learner)} scores with wrong weights (control)")
        spec, what = stale_spec(learner, self.plan.stale)
        results: list[JobResult] | list[None] = [None] * len(pairs)
        if spec is not None:
            want = self._wants(learner) if self.plan.stale else ()
            jobs = [
                ScoreJob(rollouts=_sampled(pair).part, processing=pair.processing, want=want)
                for pair in pairs
            ]
            results = self.runner.attempt(spec, jobs)
        for pair, result in zip(pairs, results, strict=True):
            self._guarded(pair, self._note_stale, result, what)
        self.state.write()

    def _note_stale(self, pair: Pair, result: JobResult | None, what: str) -> None:
        if pair.measured is not None:
            scored = self.runner.part_of(pair.measured.scored, _CONTROL_RESPONSES)
            control = stale_of(pair.measured.rollouts.part, scored, result, what)
            pair.update(controls=(*pair.cell.controls, control))
            if self.plan.stale and isinstance(result, Path):
                pair.update(churn=compare_experts(result, scored).comparison)

    def attribute(self) -> None:
        """Find the causes of each pair's differences."""
        for pair in self._open():
            if self.plan.attribution:
                self._stage(f"finding why {pair.cell.sampler} and {pair.cell.learner} differ")
                self._guarded(pair, self._attribute)
            if pair.is_open and not self.runner.is_spent:
                self.state.keep(pair, self._cell_path(pair))
            self.state.write()

    def _attribute(self, pair: Pair) -> None:
        if pair.measured is None:
            return
        attribution = investigate(self.runner, self._case(pair, pair.measured))
        certain = [cause for cause in attribution.causes if cause.confidence != "possible"]
        remedies = dict.fromkeys(remedy for cause in certain for remedy in cause.remedies)
        pair.update(
            causes=attribution.causes,
            verdict=attribution.verdict,
            remedies=tuple(remedies)[:_MAX_REMEDIES],
        )
        self.state.note(*attribution.notes)

    def _case(self, pair: Pair, measured: Measured) -> Case:
        return Case(
            sampler=pair.sampler,
            learner=pair.learner,
            sampling=pair.sampling,
            prompts=self._prompts(pair),
            rollouts=measured.rollouts.path,
            scored=measured.scored,
            processing=pair.processing,
            comparison=measured.comparison,
            sampler_facts=measured.rollouts.facts,
            learner_facts=self.runner.facts(pair.learner),
            differing=self.weights.differing(pair.sampler, pair.learner),
            stale=self.plan.stale,
            controls=pair.cell.controls,
        )

    def _open(self) -> list[Pair]:
        return [pair for pair in self.state.pairs if pair.is_open]

    def _guarded(self, pair: Pair, act: Callable[..., None], *arguments: Any) -> None:
        """Let an error fail only this pair."""
        try:
            act(pair, *arguments)
        except (EngineError, RunError) as error:
            self.state.fail(pair, error)

    def _cell_path(self, pair: Pair) -> Path:
        rollouts = _sampled(pair).path.name
        stale = self.plan.stale
        stale_files = (str(stale), fingerprint(local_model(str(stale)) or stale)) if stale else None
        settings = (self.plan.attribution, stale_files, self.plan.experts)
        key = content_key(self.runner.key(pair.learner), rollouts, settings)
        return self.runner.store.folder / "cells" / f"{key}.json"

    def _stage(self, what: str) -> None:
        self.listener.stage(what, self.state.finished, len(self.state.pairs))


def _sampled(pair: Pair) -> SampledRollouts:
    if pair.rollouts is None:
        raise RuntimeError("a pair was scored before it was sampled")
    return pair.rollouts

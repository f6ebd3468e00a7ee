"""Measures pairs of engines: samplers sample, learners score, each pair is compared.

Engines are loaded as rarely as possible: one load of a sampler samples all lengths and scores its
own tokens, one load of a learner scores the responses of all samplers.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from grpodoctor.errors import DataError, EngineError, GrpodoctorError, RunError
from grpodoctor.probe.attribution.edits import as_json
from grpodoctor.probe.attribution.engine_variants import model_path
from grpodoctor.probe.attribution.rounding import coarser_of, usual_rounding
from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.controls.expert_replay import (
    has_experts,
    replay_job,
    replayed_of,
)
from grpodoctor.probe.controls.run_controls import (
    SampledRollouts,
    Weights,
    is_plain,
    repeat_of,
    reported_edits,
    reported_processing,
    self_scoring_of,
)
from grpodoctor.probe.engines.commands import check_start, check_tokenizer, model_of
from grpodoctor.probe.engines.engine_facts import EngineFacts
from grpodoctor.probe.engines.engine_run import EngineProgress
from grpodoctor.probe.engines.engine_runner import EngineRunner, JobResult
from grpodoctor.probe.engines.jobs import (
    BudgetSpentError,
    Job,
    SampleJob,
    ScoreJob,
    TokenizeJob,
    Want,
    computes_in,
)
from grpodoctor.probe.engines.output_validation import read_ids
from grpodoctor.probe.engines.store import content_key, fingerprint
from grpodoctor.probe.first_round import (
    first_answer,
    refining,
    signature_of,
)
from grpodoctor.probe.forecast import search_seconds
from grpodoctor.probe.inputs.checksums import local_model
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.inputs.neighbor_checkpoints import neighbors_of
from grpodoctor.probe.inputs.plan import ProbePlan
from grpodoctor.probe.inputs.prompts import Prompt, shown
from grpodoctor.probe.probe_state import Measured, Pair, ProbeState
from grpodoctor.probe.results.token_text import with_token_texts
from grpodoctor.probe.severity import measured_verdict
from grpodoctor.probe.speeds import Speeds
from grpodoctor.support.numbers import part_of

CONTROL_RESPONSES = 256
"""Responses that controls use: one shard."""
_RECORD = "recorded values are always the same"
_COLUMNS: tuple[Want, ...] = ("entropy", "ranks", "temperatures")
"""Columns that attribution needs; requested during the measurement to save a load."""


class ProbeListener(Protocol):
    """Receives the progress of a probe."""

    def stage(self, what: str, done: int, total: int) -> None:
        """Called at each stage, with the number of measured pairs and of all pairs."""

    def engine(self, progress: EngineProgress) -> None:
        """Called several times a second while an engine runs."""

    def remark(self, text: str) -> None:
        """Called with the forecast, and with the first answer about each pair."""


class Measurement:
    """The measurement of all pairs of a plan.

    Args:
        plan: the plan.
        runner: runs the engines.
        listener: receives the progress.
        follows: what follows after the first answers; empty for controls and causes.
    """

    def __init__(
        self, plan: ProbePlan, runner: EngineRunner, listener: ProbeListener, follows: str = ""
    ) -> None:
        self.plan, self.runner, self.listener = plan, runner, listener
        self.state = ProbeState(plan, runner.store.folder, prompts=len(runner.prompts))
        self.weights = Weights()
        self.follows = follows
        """What follows after the first answers; empty for controls and causes."""
        self._neighbors: dict[Path, tuple[Path, ...]] = {}
        """Earlier weights next to each learner's model."""

    def check_engines(self) -> list[EngineError]:
        """Fail engines that cannot start, before others run for minutes; returns the errors."""
        errors: list[EngineError] = []
        for spec in (*self.plan.samplers, *self.plan.learners):
            try:
                check_start(spec)
                if spec in self.plan.samplers:  # the learner scores ids
                    check_tokenizer(spec, self.runner.prompts)
            except EngineError as error:
                errors.append(error)
                for pair in self.state.pairs:
                    is_used = spec.key in (pair.sampler.key, pair.learner.key)
                    if is_used and pair.cell.status != "failed":
                        self.state.fail(pair, error)
        return errors

    def is_sampled(self, sampler: EngineSpec) -> bool:
        """Whether an earlier probe into this folder sampled all responses of an engine."""
        return None not in self.runner.finished(sampler, self._sample_jobs(sampler))

    def _sample_jobs(self, sampler: EngineSpec) -> list[SampleJob]:
        want = self.wants(sampler)
        return [SampleJob(sampling=each, want=want) for each in self.plan.sampling.lengths()]

    def sample(self) -> None:
        """Let every sampler sample; start again if prompts are too long for one of them."""
        while not all(self._sample(sampler) for sampler in self.plan.samplers):
            pass

    def sample_one(self) -> None:
        """Let the first sampler that can start sample, and forget prompts that are too long."""
        failed = {pair.sampler.key for pair in self.state.pairs if pair.cell.status == "failed"}
        for sampler in self.plan.samplers:
            if sampler.key not in failed:
                while not self._sample(sampler):
                    pass
                return

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
        self.stage(f"{self.state.label(sampler)} samples")
        if not sampler.is_record:
            # A separate request, after which the engine stays loaded: an engine that is asked to
            # sample from a prompt that is too long refuses, and ends.
            (tokenized,) = self.runner.attempt(sampler, [TokenizeJob()])
            if isinstance(tokenized, Path) and self._drop_long_prompts(sampler, tokenized):
                return False
        jobs = self._sample_jobs(sampler)
        own_scores = [
            ScoreJob(rollouts=self.runner.where(sampler, job))
            for job in jobs
            # At other settings the processing depends on the facts, known only after the load.
            if is_plain(job.sampling) and self._controls(sampler)
        ]
        ids, *results = self.runner.attempt(sampler, [TokenizeJob(), *jobs, *own_scores])
        if isinstance(ids, Path) and self._drop_long_prompts(sampler, ids):
            return False
        for job, result in zip(jobs, results, strict=False):
            own_pairs = [pair for pair in pairs if pair.sampling == job.sampling]
            self._note_sampled(sampler, job, result, own_pairs)
        return True

    def _controls(self, sampler: EngineSpec) -> bool:
        """Whether a sampler scores its own tokens, as a control."""
        return self.plan.controls and not sampler.is_record

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
            f"{part_of(fits.count(False), len(fits), 'prompts', 'are')} longer than the context of "
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

    def wants(self, spec: EngineSpec) -> tuple[Want, ...]:
        """The columns that an engine returns with its log-probabilities."""
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
        if self._controls(sampler):
            rescored = self._scores_of_own(sampler, job, result, facts)
        part = self.runner.part_of(result, CONTROL_RESPONSES)
        for pair in pairs:
            pair.rollouts = SampledRollouts(job.sampling, result, part, facts, rescored)

    def _scores_of_own(
        self, sampler: EngineSpec, job: SampleJob, sampled: Path, facts: EngineFacts
    ) -> JobResult:
        """A sampler's scores of the responses that it drew, under the reported processing."""
        edits = reported_edits(job.sampling, facts)
        if edits and not sampler.kind.can_alter:
            names = ", ".join(name for name, _ in edits)
            return EngineError(
                f"its values contain {names}, which it does not apply when it scores"
            )
        own = ScoreJob(
            rollouts=sampled,
            processing=reported_processing(job.sampling, facts),
            what_if=as_json(edits),
        )
        (rescored,) = self.runner.attempt(sampler, [own])
        return rescored

    def _facts(self, spec: EngineSpec) -> EngineFacts:
        facts = self.runner.facts(spec)
        self.state.facts[self.state.label(spec)] = facts
        return facts

    def measure(self) -> None:
        """Let every learner score the sampled responses, except for finished pairs."""
        for learner in self.plan.learners:
            if pairs := self._pairs_to_score(learner):
                self._score(learner, pairs)
                if self.plan.controls or self.plan.attribution:
                    self._complete(learner, [pair for pair in pairs if pair.is_open])

    def score(self) -> None:
        """Measure the gap of every pair alone, without controls."""
        for learner in self.plan.learners:
            if pairs := self._pairs_to_score(learner):
                self._score(learner, pairs)

    def _pairs_to_score(self, learner: EngineSpec) -> list[Pair]:
        return [
            pair
            for pair in self.state.pairs
            if pair.learner.key == learner.key
            and pair.is_ready
            and pair.measured is None
            and not self._is_kept(pair)
        ]

    def _is_kept(self, pair: Pair) -> bool:
        kept = self.state.take_kept(pair, self.cell_path(pair))
        if kept:
            self._facts(pair.learner)
        return kept

    def _score(self, learner: EngineSpec, pairs: Sequence[Pair]) -> None:
        """Let a learner score the responses of all samplers; each pair is compared at once."""
        self.stage(f"{self.state.label(learner)} scores")
        want = self.wants(learner)
        jobs = [
            ScoreJob(rollouts=sampled_of(pair).path, processing=pair.processing, want=want)
            for pair in pairs
        ]
        try:
            results = self.runner.attempt(learner, jobs)
        except BudgetSpentError:
            self._compare_all(pairs, self.runner.finished(learner, jobs))
            raise
        self._compare_all(pairs, results)

    def _complete(self, learner: EngineSpec, pairs: Sequence[Pair]) -> None:
        """Let the learner score again for controls, attribution and replay, in the same load."""
        repeats = [
            ScoreJob(rollouts=sampled_of(pair).part, processing=pair.processing, backwards=True)
            for pair in pairs
        ]
        attribution = [self._attribution_job(pair) for pair in pairs if self.plan.attribution]
        routed = [pair for pair in pairs if self._is_replayed(pair)]
        replays = [replay_job(sampled_of(pair).part, pair.processing) for pair in routed]
        jobs: list[Job] = [*repeats, *attribution, TokenizeJob(), *replays]
        try:
            results = self.runner.attempt(learner, jobs)
        except BudgetSpentError:
            self._note_completed(pairs, routed, self.runner.finished(learner, jobs))
            raise
        self._note_completed(pairs, routed, results)

    def _note_completed(
        self, pairs: Sequence[Pair], routed: Sequence[Pair], results: Sequence[JobResult | None]
    ) -> None:
        """Add the controls and the replay; the results begin with the pairs' repeats."""
        for pair, repeated in zip(pairs, results, strict=False):
            self.guarded(pair, self._note_controls, repeated)
        self._replay_all(routed, results[len(results) - len(routed) :])

    def _is_replayed(self, pair: Pair) -> bool:
        """Whether the learner also scores with the sampler's experts."""
        can_replay = pair.learner.kind.can_replay and "experts" in self.wants(pair.learner)
        return can_replay and has_experts(sampled_of(pair).part)

    def _replay_all(self, pairs: Sequence[Pair], results: Sequence[JobResult | None]) -> None:
        """Add the gap with the sampler's experts; a pair does not fail without it."""
        for pair, result in zip(pairs, results, strict=True):
            if isinstance(result, EngineError):
                self.state.note(f"{pair.cell.learner} did not replay experts: {result.what}")
            elif result is not None and pair.is_open:
                self.guarded(pair, self._note_replayed, result)
        self.state.write()

    def _note_replayed(self, pair: Pair, replayed: Path) -> None:
        if pair.measured is not None:
            free = self.runner.part_of(pair.measured.scored, CONTROL_RESPONSES)
            pair.update(replayed=replayed_of(pair.measured.rollouts.part, free, replayed))

    def _attribution_job(self, pair: Pair) -> ScoreJob:
        """The learner's scores that attribution needs first; the same load computes them."""
        routed = "experts" in self.wants(pair.sampler)
        want: tuple[Want, ...] = (*_COLUMNS, "experts") if routed else _COLUMNS
        part = sampled_of(pair).part
        return ScoreJob(rollouts=part, processing=pair.processing, want=want)

    def _compare_all(self, pairs: Sequence[Pair], results: Sequence[JobResult | None]) -> None:
        """Compare the scores of each pair; None where the time was spent."""
        for pair, scored in zip(pairs, results, strict=True):
            if isinstance(scored, EngineError):
                self.state.fail(pair, self._other_vocabulary(pair) or scored)
            elif scored is not None:
                self.guarded(pair, self._compare, scored)

    def _compare(self, pair: Pair, scored: Path) -> None:
        self.stage(f"comparing {pair.cell.sampler} with {pair.cell.learner}")
        rollouts, facts = sampled_of(pair), self._facts(pair.learner)
        prompts, seed = shown(self.prompts_of(pair)), self.plan.sampling.seed
        comparison = compare(rollouts.path, scored, prompts=prompts, seed=seed)
        comparison = with_token_texts(comparison, (pair.learner.model, pair.sampler.model))
        pair.measured = Measured(rollouts, scored, comparison)
        rounding = usual_rounding(coarser_of(computes_in(rollouts.facts), computes_in(facts)))
        gap = comparison.value("mismatch/kl_k3")
        pair.update(
            status="done",
            reason="",
            comparison=comparison,
            gap=gap if math.isfinite(gap) else None,
            noise=rounding.noise,
            noise_is_usual=rounding.is_usual,
            untried=self._untried(pair, rollouts),
        )
        pair.update(verdict=measured_verdict(pair.cell))
        self._note_vocabularies(pair, rollouts.facts, facts)
        self._tell_first_answer(pair)
        self.stage(f"{self.state.label(pair.learner)} scores")  # one more pair is done
        self.state.write()

    def _untried(self, pair: Pair, rollouts: SampledRollouts) -> tuple[str, ...]:
        """The settings of the run that the sampler did not apply, with their values."""
        if pair.sampler.is_record:
            return ()
        processors = rollouts.sampling.processors().items()
        return (
            *self.plan.untried,
            *(
                f"{name} {value}"
                for name, value in processors
                if name not in rollouts.facts.processors
            ),
        )

    def _tell_first_answer(self, pair: Pair) -> None:
        """Report the gap and its likely cause before controls and causes are known."""
        if pair.measured is None:
            return
        follows = self.follows
        if not follows:
            speeds = Speeds(self.runner.store.folder)  # with the latest measurements
            tokens = pair.measured.comparison.tokens
            seconds = search_seconds(self.plan.learners, tokens, speeds)
            follows = refining(
                seconds, attribution=self.plan.attribution, controls=self.plan.controls
            )
        likely = signature_of(pair.measured.rollouts.path, pair.measured.scored)
        self.listener.remark(first_answer(pair.cell, self.state.seconds, likely, follows))

    def _note_controls(self, pair: Pair, repeated: JobResult | None) -> None:
        if pair.measured is None or not self.plan.controls:
            return
        rollouts = pair.measured.rollouts
        part = self.runner.part_of(pair.measured.scored, CONTROL_RESPONSES)
        again = EngineError(_RECORD) if pair.learner.is_record else repeated
        pair.update(
            controls=(
                self_scoring_of(rollouts),
                repeat_of(part, again, self._facts(pair.learner)),
                self.weights.control(pair.sampler, pair.learner),
            )
        )

    def prompts_of(self, pair: Pair) -> tuple[Prompt, ...]:
        """The prompts of a pair's responses; a record has its own."""
        return self.runner.prompts_of(sampled_of(pair).path)

    def _other_vocabulary(self, pair: Pair) -> EngineError | None:
        """An error that names a learner whose vocabulary is too small, in place of the engine's."""
        try:
            vocab_size = self.runner.facts(pair.learner).vocab_size
            largest = sampled_of(pair).largest_id()
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

    def guarded(self, pair: Pair, act: Callable[..., None], *arguments: Any) -> None:
        """Let an error fail only this pair."""
        try:
            act(pair, *arguments)
        except (EngineError, RunError) as error:
            self.state.fail(pair, error)

    def cell_path(self, pair: Pair) -> Path:
        """The file that keeps the finished pair."""
        rollouts = sampled_of(pair).path.name
        stale = self.plan.stale
        stale_files = (str(stale), fingerprint(local_model(str(stale)) or stale)) if stale else None
        settings = (
            self.plan.attribution, stale_files, self.plan.experts, self.plan.controls,
            self.plan.untried, self._neighbor_files(pair),
        )  # fmt: skip
        key = content_key(self.runner.key(pair.learner), rollouts, settings)
        return self.runner.store.folder / "cells" / f"{key}.json"

    def _neighbor_files(self, pair: Pair) -> list[Any]:
        """What attribution finds next to the learner, which must be compared if it changes."""
        if not self.plan.attribution or pair.learner.is_record:
            return []
        model = model_path(pair.learner)
        if model not in self._neighbors:
            self._neighbors[model] = neighbors_of(model).all
        return [(str(path), fingerprint(path)) for path in self._neighbors[model]]

    def stage(self, what: str) -> None:
        """Report a stage."""
        self.listener.stage(what, self.state.finished, len(self.state.pairs))


def sampled_of(pair: Pair) -> SampledRollouts:
    """The responses of a pair."""
    if pair.rollouts is None:
        raise RuntimeError("a pair was scored before it was sampled")
    return pair.rollouts

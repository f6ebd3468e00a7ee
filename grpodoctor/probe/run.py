"""A whole probe: every sampler samples, every learner scores, every pair is compared and explained.

Engines are loaded as few times as can be: a sampler draws all lengths and scores its own tokens in
one load, a learner scores what all samplers have drawn in one. What is measured comes before what
is looked into, so that a budget that ends has left figures for as many pairs as possible. What
fails takes its own pairs with it and no others.
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
"""Responses that controls look at: one shard."""
_REMEDIES = 6
_RECORD = "a record says what it says, however often it is asked"
_COLUMNS: tuple[Want, ...] = ("entropy", "ranks", "temperatures")
"""What attribution reads its signatures from; a test counts the loads."""


class Listener(Protocol):
    """Whom a probe tells how it goes."""

    def stage(self, what: str, done: int, total: int) -> None:
        """What it does now, and how many pairs are measured."""

    def work(self, work: EngineProgress) -> None:
        """What an engine is busy with; several times a second."""


def probe(plan: ProbePlan, folder: Path, listener: Listener) -> ProbeResult:
    """Do what is planned, and keep it in `folder`; a probe that was ended goes on there.

    Raises:
        RunError: if the folder is in use or cannot be written to.
        DataError: if the prompts cannot be read.
    """
    given = read_prompts(plan.prompts, plan.limit) if plan.prompts is not None else []
    deadline = time.monotonic() + plan.budget if plan.budget else float("inf")
    with EngineRunner(folder, given, deadline=deadline, watch=listener.work) as runner:
        if plan.prompts is None:
            runner.use_prompts(_built_in(plan, runner.store.folder))
        run = _Run(plan, runner, listener)
        try:
            run.look()
            run.sample()
            run.measure()
            run.control()
            run.attribute()
        except BudgetSpentError:
            run.state.note(
                "the time was over before all was done; probe again into the same folder"
            )
            run.state.end_early("the time was over (--budget)")
        return run.state.write()


def _built_in(plan: ProbePlan, folder: Path) -> list[Prompt]:
    """Prompts for who gives none, as conversations too where all models have a template."""
    models = sorted({spec.model for spec in (*plan.samplers, *plan.learners)})
    path = folder / "prompts" / f"{content_key(models)}.chat.json"
    # A model that is not here yet is not known to have one; a probe that goes on asks the same.
    chat = read_json(path).get("chat", all(map(has_chat_template, models)))
    write_json(path, {"chat": chat})
    return builtin_prompts(plan.limit, chat=chat is True, seed=plan.sampling.seed)


class _Run:
    """One probe at work."""

    def __init__(self, plan: ProbePlan, runner: EngineRunner, listener: Listener) -> None:
        self.plan, self.runner, self.listener = plan, runner, listener
        self.state = ProbeState(plan, runner.store.folder, prompts=len(runner.prompts))
        self.weights = Weights()

    def look(self) -> None:
        """Fail at once what cannot start, lest others work for minutes for nothing."""
        for spec in (*self.plan.samplers, *self.plan.learners):
            try:
                check_start(spec)
            except EngineError as error:
                for pair in self.state.pairs:
                    is_its = spec.key in (pair.sampler.key, pair.learner.key)
                    if is_its and pair.cell.status != "failed":
                        self.state.fail(pair, error)

    def sample(self) -> None:
        """Have every sampler sample; begin anew if prompts turn out to be too long for one."""
        while not all(self._sample(sampler) for sampler in self.plan.samplers):
            pass

    def _sample(self, sampler: EngineSpec) -> bool:
        """Have one draw all lengths and score its own tokens; whether all prompts fit."""
        pairs = [pair for pair in self.state.pairs if pair.sampler.key == sampler.key]
        if all(pair.cell.status == "failed" for pair in pairs):
            return True
        try:
            return self._draw(sampler, pairs)
        except DataError as error:
            for pair in pairs:
                self.state.fail(pair, error)
            return True

    def _draw(self, sampler: EngineSpec, pairs: Sequence[Pair]) -> bool:
        self._stage(f"{self.state.label(sampler)} samples")
        (known,) = self.runner.finished(sampler, [TokenizeJob()])
        if known and self._leave_out_long(sampler, known):  # as an earlier probe has found
            return False
        samplings = self.plan.sampling.lengths()
        want = self._wants(sampler)
        draws = [SampleJob(sampling=each, want=want) for each in samplings]
        own = [
            ScoreJob(rollouts=self.runner.where(sampler, draw))
            for draw in draws
            # At other settings the facts must be known first: they say what its samples are of.
            if Processing.of(draw.sampling) == Processing() and not sampler.is_record
        ]
        ids, *outcomes = self.runner.attempt(sampler, [TokenizeJob(), *draws, *own])
        if isinstance(ids, Path) and self._leave_out_long(sampler, ids):
            return False
        for draw, outcome in zip(draws, outcomes, strict=False):
            mine = [pair for pair in pairs if pair.sampling == draw.sampling]
            self._note_sampled(sampler, draw, outcome, mine)
        return True

    def _leave_out_long(self, sampler: EngineSpec, ids: Path) -> bool:
        """Leave out prompts that do not fit the sampler's context; whether there were any.

        They are left out and told, and not refused: a trainer's loader filters them out too, and a
        comparison over hundreds of prompts loses nothing. All engines go on with the same prompts.

        Raises:
            DataError: if none is left.
        """
        # A record does not tell of a context: what is in it has fitted.
        context = self.runner.facts(sampler).context or sys.maxsize
        # Room for two tokens: one to draw, and one that vLLM draws whenever it scores.
        fits = [len(each) + 2 <= context for each in read_ids(ids / "ids.json")]
        if all(fits):
            return False
        told = (
            f"{fits.count(False)} of {len(fits)} prompts are longer than the context of "
            f"{self.state.label(sampler)}, {context} tokens"
        )
        if not any(fits):
            raise DataError(
                told,
                where=str(self.plan.prompts or "built-in prompts"),
                remedy="give shorter prompts, or raise the context (vLLM: max_model_len)",
            )
        self.state.note(f"{told}, and were left out")
        self.runner.use_prompts(
            [each for each, fit in zip(self.runner.prompts, fits, strict=True) if fit]
        )
        self.state.prompts = len(self.runner.prompts)
        return True

    def _wants(self, spec: EngineSpec) -> tuple[Want, ...]:
        routed = self.plan.experts and self.weights.has_routers(model_of(spec)[0])
        return ("entropy", "experts") if routed else ("entropy",)

    def _note_sampled(
        self, sampler: EngineSpec, draw: SampleJob, outcome: JobResult, pairs: Sequence[Pair]
    ) -> None:
        if isinstance(outcome, EngineError):
            for pair in pairs:
                self.state.fail(pair, outcome)
            return
        facts = self._facts(sampler)
        rescored: JobResult = EngineError(_RECORD)
        if not sampler.is_record:
            own = ScoreJob(rollouts=outcome, processing=reported_processing(draw.sampling, facts))
            (rescored,) = self.runner.attempt(sampler, [own])
        part = self.runner.part_of(outcome, _CONTROL_RESPONSES)
        for pair in pairs:
            pair.rollouts = SampledRollouts(draw.sampling, outcome, part, facts, rescored)

    def _facts(self, spec: EngineSpec) -> EngineFacts:
        facts = self.runner.facts(spec)
        self.state.facts[self.state.label(spec)] = facts
        return facts

    def measure(self) -> None:
        """Have every learner score what was sampled, but for pairs that are finished already."""
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
        """Have a learner score what all samplers have drawn; each pair is compared at once."""
        self._stage(f"{self.state.label(learner)} scores")
        jobs = [job for pair in pairs for job in self._score_jobs(pair)]
        later = [self._looked_into(pair) for pair in pairs if self.plan.attribution]
        routed = [pair for pair in pairs if self._is_replayed(pair)]
        replays = [replay_job(_sampled(pair).part, pair.processing) for pair in routed]
        try:
            outcomes = self.runner.attempt(learner, [*jobs, *later, TokenizeJob(), *replays])
        except BudgetSpentError:
            self._compare_all(pairs, self.runner.finished(learner, jobs))
            self._replay_all(routed, self.runner.finished(learner, replays))
            raise
        self._compare_all(pairs, outcomes)
        self._replay_all(routed, outcomes[len(outcomes) - len(routed) :])

    def _is_replayed(self, pair: Pair) -> bool:
        """Whether the learner is to score with the sampler's experts too."""
        asked = pair.learner.kind.can_replay and "experts" in self._wants(pair.learner)
        return asked and has_experts(_sampled(pair).part)

    def _replay_all(self, pairs: Sequence[Pair], outcomes: Sequence[JobResult | None]) -> None:
        """Say what the sampler's experts have made of the gap; no pair fails for want of it."""
        for pair, outcome in zip(pairs, outcomes, strict=True):
            if isinstance(outcome, EngineError):
                self.state.note(f"{pair.cell.learner} did not replay experts: {outcome.what}")
            elif outcome is not None and pair.is_open:
                self._guarded(pair, self._note_replayed, outcome)
        self.state.write()

    def _note_replayed(self, pair: Pair, held: Path) -> None:
        if pair.measured is not None:
            free = self.runner.part_of(pair.measured.scored, _CONTROL_RESPONSES)
            pair.update(replayed=replayed_of(pair.measured.rollouts.part, free, held))

    def _score_jobs(self, pair: Pair) -> tuple[ScoreJob, ScoreJob]:
        """The measurement, and the first shards of it backwards, for a control."""
        rollouts, want = _sampled(pair), self._wants(pair.learner)
        return (
            ScoreJob(rollouts=rollouts.path, processing=pair.processing, want=want),
            ScoreJob(rollouts=rollouts.part, processing=pair.processing, backwards=True),
        )

    def _looked_into(self, pair: Pair) -> ScoreJob:
        """What attribution will ask the learner first; done in the same load it costs no other."""
        routed = "experts" in self._wants(pair.sampler)
        want: tuple[Want, ...] = (*_COLUMNS, "experts") if routed else _COLUMNS
        part = _sampled(pair).part
        return ScoreJob(rollouts=part, processing=pair.processing, want=want)

    def _compare_all(self, pairs: Sequence[Pair], outcomes: Sequence[JobResult | None]) -> None:
        """Compare what was scored, two outcomes a pair; None is what there was no time for."""
        for number, pair in enumerate(pairs):
            scored, backwards = outcomes[2 * number : 2 * number + 2]
            if isinstance(scored, EngineError):
                self.state.fail(pair, self._other_vocabulary(pair) or scored)
            elif scored is not None:
                self._guarded(pair, self._compare, scored, backwards)

    def _compare(self, pair: Pair, scored: Path, backwards: JobResult | None) -> None:
        self._stage(f"compares {pair.cell.sampler} with {pair.cell.learner}")
        rollouts, facts = _sampled(pair), self._facts(pair.learner)
        prompts, seed = shown(self._prompts(pair)), self.plan.sampling.seed
        found = compare(rollouts.path, scored, prompts=prompts, seed=seed)
        found = with_token_texts(found, (pair.learner.model, pair.sampler.model))
        part = self.runner.part_of(scored, _CONTROL_RESPONSES)
        again = EngineError(_RECORD) if pair.learner.is_record else backwards
        controls = (
            self_scoring_of(rollouts),
            repeat_of(part, again, facts),
            self.weights.control(pair.sampler, pair.learner),
        )
        pair.measured = Measured(rollouts, scored, found)
        verdict = measured_verdict(found)
        pair.update(status="done", reason="", comparison=found, controls=controls, verdict=verdict)
        self._note_vocabularies(pair, rollouts.facts, facts)
        self._stage(f"{self.state.label(pair.learner)} scores")  # with one pair more
        self.state.write()

    def _prompts(self, pair: Pair) -> tuple[Prompt, ...]:
        """What the responses of a pair are to: a record has prompts of its own."""
        return self.runner.prompts_of(_sampled(pair).path)

    def _other_vocabulary(self, pair: Pair) -> EngineError | None:
        """The error of a learner that does not know all ids, whatever it has said itself."""
        try:
            known = self.runner.facts(pair.learner).vocab_size
            largest = _sampled(pair).largest_id()
        except GrpodoctorError:
            return None
        if largest < known or not known:
            return None
        return EngineError(
            f"{pair.cell.learner} knows {known} tokens, and {pair.cell.sampler} has sampled the id "
            f"{largest}: their vocabularies differ",
            remedy="give both engines the same model",
        )

    def _note_vocabularies(self, pair: Pair, sampler: EngineFacts, learner: EngineFacts) -> None:
        if 0 != sampler.vocab_size != learner.vocab_size != 0:
            self.state.note(
                f"{pair.cell.sampler} knows {sampler.vocab_size} tokens and {pair.cell.learner} "
                f"{learner.vocab_size}: one of them pads its embedding, or they are other models"
            )

    def control(self) -> None:
        """Have learners that are wrong on purpose score what the learners have scored."""
        for learner in self.plan.learners:
            pairs = [pair for pair in self._open() if pair.learner.key == learner.key]
            if pairs:
                self._control(learner, pairs)

    def _control(self, learner: EngineSpec, pairs: Sequence[Pair]) -> None:
        self._stage(f"{self.state.label(learner)} with wrong weights on purpose")
        spec, what = stale_spec(learner, self.plan.stale)
        outcomes: list[JobResult] | list[None] = [None] * len(pairs)
        if spec is not None:
            want = self._wants(learner) if self.plan.stale else ()
            jobs = [
                ScoreJob(rollouts=_sampled(pair).part, processing=pair.processing, want=want)
                for pair in pairs
            ]
            outcomes = self.runner.attempt(spec, jobs)
        for pair, outcome in zip(pairs, outcomes, strict=True):
            self._guarded(pair, self._note_stale, outcome, what)
        self.state.write()

    def _note_stale(self, pair: Pair, outcome: JobResult | None, what: str) -> None:
        if pair.measured is not None:
            scored = self.runner.part_of(pair.measured.scored, _CONTROL_RESPONSES)
            control = stale_of(pair.measured.rollouts.part, scored, outcome, what)
            pair.update(controls=(*pair.cell.controls, control))
            if self.plan.stale and isinstance(outcome, Path):
                pair.update(churn=compare_experts(outcome, scored).comparison)

    def attribute(self) -> None:
        """Find out why the engines of each pair differ."""
        for pair in self._open():
            if self.plan.attribution:
                self._stage(f"looks why {pair.cell.sampler} and {pair.cell.learner} differ")
                self._guarded(pair, self._attribute)
            if pair.is_open and not self.runner.is_spent:
                self.state.keep(pair, self._cell_path(pair))
            self.state.write()

    def _attribute(self, pair: Pair) -> None:
        if pair.measured is None:
            return
        found = investigate(self.runner, self._case(pair, pair.measured))
        sure = [each for each in found.causes if each.confidence != "possible"]
        advice = dict.fromkeys(remedy for cause in sure for remedy in cause.remedies)
        remedies = tuple(advice)[:_REMEDIES]
        pair.update(causes=found.causes, verdict=found.verdict, remedies=remedies)
        self.state.note(*found.notes)

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
        """Let a pair fail alone."""
        try:
            act(pair, *arguments)
        except (EngineError, RunError) as error:
            self.state.fail(pair, error)

    def _cell_path(self, pair: Pair) -> Path:
        rollouts = _sampled(pair).path.name
        stale = self.plan.stale
        older = (str(stale), fingerprint(local_model(str(stale)) or stale)) if stale else None
        settings = (self.plan.attribution, older, self.plan.experts)
        key = content_key(self.runner.key(pair.learner), rollouts, settings)
        return self.runner.store.folder / "cells" / f"{key}.json"

    def _stage(self, what: str) -> None:
        self.listener.stage(what, self.state.finished, len(self.state.pairs))


def _sampled(pair: Pair) -> SampledRollouts:
    if pair.rollouts is None:
        raise RuntimeError("a pair was scored before it was sampled")
    return pair.rollouts

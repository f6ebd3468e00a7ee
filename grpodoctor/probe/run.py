"""Runs a probe: every sampler samples, every learner scores, every pair is compared and explained.

All measurements come before attribution, so that a spent time budget leaves figures for as many
pairs as possible. An engine that fails affects only its own pairs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

from grpodoctor.probe.attribution.case import Attribution, Case
from grpodoctor.probe.attribution.investigate import investigate, measured_rounding
from grpodoctor.probe.comparison.experts import compare_experts
from grpodoctor.probe.controls.controls import within_rounding
from grpodoctor.probe.controls.run_controls import stale_of, stale_spec
from grpodoctor.probe.engines.engine_runner import EngineRunner, JobResult
from grpodoctor.probe.engines.jobs import BudgetSpentError, ScoreJob
from grpodoctor.probe.engines.store import content_key, read_json, write_json
from grpodoctor.probe.first_round import (
    first_plan,
    first_prompts,
    is_checked,
    is_late,
    is_too_low,
)
from grpodoctor.probe.forecast import Forecast, forecast_of, in_words
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.inputs.plan import ProbePlan
from grpodoctor.probe.inputs.prompts import Prompt, read_prompts
from grpodoctor.probe.inputs.prompts_builtin import builtin_prompts, has_chat_template
from grpodoctor.probe.measurement import CONTROL_RESPONSES, Measurement, ProbeListener, sampled_of
from grpodoctor.probe.probe_state import Measured, Pair
from grpodoctor.probe.results.results import Cell, ProbeResult
from grpodoctor.probe.severity import (
    QUIET,
    is_rounding_cause,
    is_within_rounding,
    measured_verdict,
    with_untried,
)
from grpodoctor.probe.speeds import Speeds

_MAX_REMEDIES = 6


def probe(plan: ProbePlan, folder: Path, listener: ProbeListener) -> ProbeResult:
    """Run a plan and store everything in `folder`; an interrupted probe resumes there.

    Raises:
        RunError: if the folder is in use or cannot be written to.
        DataError: if the prompts cannot be read.
        EngineError: if no pair can be measured, because engines cannot start.
    """
    given = read_prompts(plan.prompts, plan.limit) if plan.prompts is not None else []
    deadline = time.monotonic() + plan.budget if plan.budget else float("inf")
    with EngineRunner(folder, given, deadline=deadline, watch=listener.engine) as runner:
        if plan.prompts is None:
            runner.use_prompts(_built_in(plan, runner.store.folder))
        run = _ProbeRun(plan, runner, listener)
        run.state.note(*plan.notes)
        run.check_engines()
        forecast = forecast_of(plan, len(runner.prompts), Speeds(runner.store.folder))
        listener.remark(forecast.line)
        try:
            run.measure_first(forecast)
            run.measurement.sample()
            run.measurement.measure()
            run.control()
            run.attribute()
        except BudgetSpentError:
            budget = f" of {plan.budget:g} s" if plan.budget else ""
            run.state.note(
                f"the time budget{budget} was spent before all controls and causes were tested; "
                f"to continue, run the same command with --output {folder}"
            )
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


def _depends_on_rounding(cell: Cell) -> bool:
    """Whether the severity of a pair without attribution depends on its model's rounding."""
    failed = any(control.passed is False for control in cell.controls)
    return cell.noise_is_usual and (failed or not is_within_rounding(cell))


class _ProbeRun:
    """One run of a probe."""

    def __init__(self, plan: ProbePlan, runner: EngineRunner, listener: ProbeListener) -> None:
        self.plan, self.runner, self.listener = plan, runner, listener
        self.measurement = Measurement(plan, runner, listener)
        self.state = self.measurement.state

    def check_engines(self) -> None:
        """Report engines that cannot start, before others run for minutes.

        Raises:
            EngineError: if each pair has such an engine.
        """
        errors = self.measurement.check_engines()
        if errors and all(pair.cell.status == "failed" for pair in self.state.pairs):
            self.state.write()
            raise errors[0]
        for error in errors:
            self.listener.remark(f"error: {error}")

    def measure_first(self, forecast: Forecast) -> None:
        """Measure a small part of the responses, if the whole measurement takes long.

        A forecast from the sizes of the models knows nothing of the load of the machine. So the
        first sampler samples the part before the decision, and its times correct the forecast.
        """
        plan = first_plan(self.plan, len(self.runner.prompts))
        if plan is None or any(map(self.measurement.is_sampled, plan.samplers)):
            return
        prompts = self.runner.prompts
        self.runner.use_prompts(first_prompts(prompts, plan.limit))
        first = Measurement(plan, self.runner, self.listener)
        try:
            first.check_engines()
            if self._is_late(forecast, first, len(prompts)):
                if self.plan.budget:  # an answer about one sampler before the others start
                    first.sample_one()
                    first.score()
                first.sample()
                first.score()
        finally:
            self.runner.use_prompts(prompts)
            self.state.take_first_round(first.state)
            self.state.write()

    def _is_late(self, forecast: Forecast, first: Measurement, prompts: int) -> bool:
        """Whether a first round is worthwhile, by a forecast with the times of the first sampler.

        That forecast replaces what the first answers say about the time to come.
        """
        if is_checked(forecast):
            first.sample_one()  # its engine stays loaded for what follows
            measured = forecast_of(self.plan, prompts, Speeds(self.runner.store.folder))
            if is_too_low(forecast, measured):
                self.listener.remark(measured.line.replace("forecast:", "corrected forecast:", 1))
            forecast = measured
        within = "" if forecast.seconds is None else f" within {in_words(forecast.seconds)}"
        first.follows = f"Refining: the whole measurement follows{within}."
        return is_late(forecast)

    def control(self) -> None:
        """Let learners with deliberately wrong weights score the same responses."""
        for learner in self.plan.learners if self.plan.controls else ():
            pairs = [pair for pair in self._open() if pair.learner.key == learner.key]
            if pairs:
                self._control(learner, pairs)

    def _control(self, learner: EngineSpec, pairs: Sequence[Pair]) -> None:
        self.measurement.stage(f"{self.state.label(learner)} scores with wrong weights (control)")
        spec, what = stale_spec(learner, self.plan.stale)
        results: list[JobResult] | list[None] = [None] * len(pairs)
        if spec is not None:
            want = self.measurement.wants(learner) if self.plan.stale else ()
            jobs = [
                ScoreJob(rollouts=sampled_of(pair).part, processing=pair.processing, want=want)
                for pair in pairs
            ]
            results = self.runner.attempt(spec, jobs)
        for pair, result in zip(pairs, results, strict=True):
            self.measurement.guarded(pair, self._note_stale, result, what)
        self.state.write()

    def _note_stale(self, pair: Pair, result: JobResult | None, what: str) -> None:
        if pair.measured is not None:
            scored = self.runner.part_of(pair.measured.scored, CONTROL_RESPONSES)
            control = stale_of(pair.measured.rollouts.part, scored, result, what)
            pair.update(controls=(*pair.cell.controls, control))
            if self.plan.stale and isinstance(result, Path):
                pair.update(churn=compare_experts(result, scored).comparison)

    def attribute(self) -> None:
        """Find the causes of each pair's differences."""
        for pair in self._open():
            if self.plan.attribution:
                self.measurement.stage(
                    f"finding why {pair.cell.sampler} and {pair.cell.learner} differ"
                )
                self.measurement.guarded(pair, self._attribute)
            elif self.plan.controls and _depends_on_rounding(pair.cell):
                self.measurement.stage(f"measuring the rounding of {pair.cell.learner}")
                self.measurement.guarded(pair, self._measure_rounding)
            if pair.is_open and not self.runner.is_spent:
                self.state.keep(pair, self.measurement.cell_path(pair))
            self.state.write()

    def _attribute(self, pair: Pair) -> None:
        if pair.measured is None:
            return
        attribution = investigate(self.runner, self._case(pair, pair.measured))
        pair.update(
            causes=attribution.causes,
            verdict=with_untried(attribution.verdict, pair.cell.untried),
        )
        self._take_rounding(pair, attribution)
        certain = [
            cause
            for cause in attribution.causes
            if cause.confidence != "possible" and not is_rounding_cause(pair.cell, cause)
        ]
        remedies = dict.fromkeys(remedy for cause in certain for remedy in cause.remedies)
        pair.update(remedies=tuple(remedies)[:_MAX_REMEDIES])
        self.state.note(*attribution.notes)

    def _measure_rounding(self, pair: Pair) -> None:
        """Measure the rounding of a pair's model without a search for causes."""
        if pair.measured is None:
            return
        case = self._case(pair, pair.measured)
        self._take_rounding(pair, measured_rounding(self.runner, case))
        pair.update(verdict=measured_verdict(pair.cell))

    def _take_rounding(self, pair: Pair, attribution: Attribution) -> None:
        """Judge a pair and its controls by the rounding measured in it."""
        noise, controls = attribution.noise, pair.cell.controls
        if noise is not None and not attribution.noise_is_usual:
            controls = tuple(within_rounding(each, QUIET * noise) for each in controls)
        pair.update(
            gap=attribution.gap if math.isfinite(attribution.gap) else None,
            noise=noise,
            noise_is_usual=attribution.noise_is_usual,
            controls=controls,
        )

    def _case(self, pair: Pair, measured: Measured) -> Case:
        return Case(
            sampler=pair.sampler,
            learner=pair.learner,
            sampling=pair.sampling,
            prompts=self.measurement.prompts_of(pair),
            rollouts=measured.rollouts.path,
            scored=measured.scored,
            processing=pair.processing,
            comparison=measured.comparison,
            sampler_facts=measured.rollouts.facts,
            learner_facts=self.runner.facts(pair.learner),
            differing=self.measurement.weights.differing(pair.sampler, pair.learner),
            stale=self.plan.stale,
            controls=pair.cell.controls,
        )

    def _open(self) -> list[Pair]:
        return [pair for pair in self.state.pairs if pair.is_open]

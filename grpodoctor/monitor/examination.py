"""The examination of a run: step records and events in, a report out; live or offline."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from grpodoctor.frameworks.registry import configurable_frameworks, find_framework
from grpodoctor.frameworks.relative_settings import with_values
from grpodoctor.frameworks.run_config import flattened
from grpodoctor.frameworks.unused_keys import UnusedKeys
from grpodoctor.monitor.advice import Advice, AdviceSource, with_alternatives
from grpodoctor.monitor.attached_probes import AttachedProbes
from grpodoctor.monitor.bounded_json import bounded, short
from grpodoctor.monitor.chart_specs import CHARTED_METRICS, DIVIDED_METRICS
from grpodoctor.monitor.crash_report import CrashReport, remedy_for, with_caution
from grpodoctor.monitor.diagnosis.costs import CostTracker
from grpodoctor.monitor.diagnosis.diagnose import Reading, diagnose
from grpodoctor.monitor.diagnosis.problems import is_alarm
from grpodoctor.monitor.downsampled_series import SeriesByMetric
from grpodoctor.monitor.report import (
    EarlierRun,
    Report,
    RunFacts,
    TreatmentEntry,
    with_earlier_runs,
)
from grpodoctor.monitor.response_lengths import Lengths, lengths_of
from grpodoctor.monitor.step_gaps import StepGaps
from grpodoctor.remedies.recent_readings import recent_readings
from grpodoctor.rules.base import Finding, Rule
from grpodoctor.rules.diagnosis import Change
from grpodoctor.rules.engine import Engine
from grpodoctor.runs.crash import Crash
from grpodoctor.runs.inferred_groups import INFERRED_ZERO_VARIANCE
from grpodoctor.runs.reading.rows.step_assembly import MIN_RUN_STEPS
from grpodoctor.runs.records import Event, Manifest, StepRecord
from grpodoctor.support.files.growing_files import Damage
from grpodoctor.vocabulary.knobs import Setting

MAX_DAMAGE = 50
"""Number of damaged lines that a report quotes; the others are only counted."""

MAX_TREATMENTS = 500
"""Number of journal lines kept: the latest ones."""

_ADVICE_FACTS = (
    "lora_rank", "pretrained_model", "batch_responses", "update_responses", "learner_devices",
    "device_responses",
)  # fmt: skip
"""Facts of the config that remedies depend on."""

_MAX_PROBE_DAMAGE = 3
_MAX_EARLIER_RUNS = 20
_MAX_CHECKPOINTS = 1000
"""Checkpoints kept of a journal: of more, the first, the latest half, and some of those between."""
_PACE_STEPS = 20
_TREATMENT = "treatment-"

SWITCHED = "treatment-switched"
"""A block of a treatment has begun; reports and news leave these lines out."""


class Examination:
    """One pass over a run: the rule engine, the series for the charts, the journal, the damage.

    Args:
        directory: the run directory, as the user gave it.
        manifest: the run's manifest.
        rules: the rules to run.
    """

    def __init__(self, directory: Path, manifest: Manifest, rules: Sequence[Rule]) -> None:
        self.directory = directory
        self.manifest = manifest
        self.rules = rules
        self.engine = Engine(rules, manifest)
        self.costs = CostTracker()
        self.attached_probes = AttachedProbes(directory)
        self.series = SeriesByMetric(CHARTED_METRICS, DIVIDED_METRICS)
        self.treatments: deque[TreatmentEntry] = deque(maxlen=MAX_TREATMENTS)
        self.damage: list[Damage] = []
        self.damage_total = 0
        self.notes: list[str] = []
        """How the log of a framework was read."""
        self.address = ""
        """Address of a remote run that was downloaded to `directory`."""
        self.log = ""
        """The file that has the steps; empty if it is a temporary copy."""
        self.crash: Crash | None = None
        """The error with which the log ends."""
        self.gpus: int | None = None
        """Number of GPUs, if the run's config tells it."""
        self.finished = False
        self.steps = 0
        """Number of step records read."""
        self._unmapped: tuple[str, ...] = ()
        self._components: tuple[str, ...] = ()
        self._gap_notes: list[str] = []
        self._first_step: int | None = None
        self._checkpoints: list[int] = []
        self._runs_before = 0
        self._earlier_runs: deque[EarlierRun] = deque(maxlen=_MAX_EARLIER_RUNS)
        self._gaps = StepGaps()
        self._times: deque[float] = deque(maxlen=_PACE_STEPS + 1)

    def observe(self, record: StepRecord) -> list[Change]:
        """Process a step; returns the findings that it raised, escalated or resolved."""
        if self._first_step is None or record.step <= self._first_step:
            self._note_earlier_run()  # another run follows in the log
            self._first_step, self.steps = record.step, 0
            self._gaps = StepGaps()
        self.steps += 1
        self._gaps.add(record.step)
        self._times.append(record.time)
        self.finished = False
        self.series.observe(record)
        changes = self.engine.observe(self.attached_probes.add_readings(record))
        inferred = self.engine.chart.series(INFERRED_ZERO_VARIANCE)
        is_fresh = inferred.last_step == record.step
        self.costs.observe(record, inferred.last if is_fresh else None)
        return changes

    def _note_earlier_run(self) -> None:
        """Keep the verdict on the steps so far, if they are a separate run."""
        first, last = self._first_step, self.engine.chart.step
        if first is None or last - first < MIN_RUN_STEPS:
            return
        self._runs_before += 1
        verdict = self._report(None, ()).diagnosis.verdict
        lengths = lengths_of(self.engine.chart, self.rules)
        self._earlier_runs.append(EarlierRun(self._runs_before, first, last, verdict, lengths))

    def note(self, event: Event) -> None:
        """Process a line of the journal."""
        if event.kind == SWITCHED:
            return  # the drawn order, one line before, contains it
        if event.kind.startswith(_TREATMENT):
            self.treatments.append(_treatment(event))
        elif event.kind == "checkpoint":
            self._checkpoints.append(event.step)
            if len(self._checkpoints) > _MAX_CHECKPOINTS:
                del self._checkpoints[_least_missed(self._checkpoints)]
        elif event.kind == "finished":
            self.finished = True
        elif event.kind in {"started", "resumed"}:
            self.finished = False

    def note_damage(self, damage: Sequence[Damage], total: int | None = None) -> None:
        """Count damaged lines, and keep the first of them.

        Args:
            damage: damaged lines.
            total: number of damaged lines, if `damage` holds only some of them.
        """
        self.damage_total += len(damage) if total is None else total
        self.damage += damage[: MAX_DAMAGE - len(self.damage)]

    def note_unused_keys(self, unused: UnusedKeys) -> None:
        """Replace the notes about the keys of a framework's log that are not used."""
        self._unmapped = tuple(sorted(unused.unmapped))
        self._components = unused.components
        rejected = [f"{key} is not used: {why}" for key, why in sorted(unused.rejected.items())]
        ambiguous = [
            f"{key} is not used: its meaning depends on {setting}"
            for key, setting in sorted(unused.ambiguous.items())
        ]
        self._gap_notes = rejected + ambiguous

    @property
    def last_time(self) -> float:
        """Unix time of the latest step; 0 if unknown."""
        return self._times[-1] if self._times else 0.0

    @property
    def steps_per_minute(self) -> float | None:
        """Pace over the latest steps; None until two of them have a time."""
        known = [time for time in self._times if time > 0]
        if len(known) < 2 or known[-1] <= known[0]:
            return None
        return 60 * (len(known) - 1) / (known[-1] - known[0])

    def facts(self) -> RunFacts:
        """The identity of the run, and how much of it was read."""
        return RunFacts(
            path=self.address or str(self.directory),
            framework=self.manifest.framework,
            first_step=self._first_step,
            last_step=self.engine.chart.step if self.steps else None,
            steps=self.steps,
            model=self.manifest.model,
            seed=self.manifest.seed,
            started=self.manifest.started,
            unread_steps=self._gaps.count,
            log=self.log,
        )

    def report(self, framework: str | None = None) -> Report:
        """Everything known so far.

        Args:
            framework: framework whose keys the remedies show; the run's own if None.
        """
        return self._report(framework, tuple(self._earlier_runs))

    def _report(self, framework: str | None, earlier: tuple[EarlierRun, ...]) -> Report:
        results = self.engine.diagnosis()
        remedies = {remedy for finding in results.findings for remedy in finding.remedies}
        advice = with_caution(self.advice(with_alternatives(remedies), framework), self.crash)
        crash = self._crash_report(framework)
        reading = Reading(
            self.steps,
            self._first_step,
            self.gpus,
            self._unmapped,
            self._components,
            tuple(self._checkpoints),
            crash.what if crash else "",
        )
        diagnosis = diagnose(self.engine, self.rules, self.costs, reading, advice)
        verdict = with_earlier_runs(diagnosis.verdict, earlier)
        return Report(
            run=self.facts(),
            diagnosis=replace(diagnosis, verdict=verdict),
            advice=advice,
            skipped=results.skipped,
            not_applicable=results.not_applicable,
            defects=results.defects,
            quiet=results.quiet,
            unmapped=results.unmapped + self._unmapped,
            notes=(
                *self.notes,
                *self._gap_notes,
                *self._probe_notes(),
            ),
            damage=tuple(self.damage),
            damage_total=self.damage_total,
            treatments=tuple(self.treatments),
            earlier_runs=earlier,
            lengths=lengths_of(self.engine.chart, self.rules) if earlier else Lengths(),
            crash=crash,
        )

    def _crash_report(self, framework: str | None) -> CrashReport | None:
        """What to report about the error with which the log ends; None if there is none."""
        if self.crash is None:
            return None
        remedy = remedy_for(self.crash.kind)
        advice = self.advice([remedy], framework)[remedy] if remedy else None
        if advice is not None:
            config = dict(flattened(self.engine.chart.manifest.config))
            advice = replace(advice, spelling=with_values(advice.spelling, config))
        return CrashReport(self.crash, self.facts().last_step, advice)

    def findings_by_cause(self) -> tuple[list[Finding], dict[str, Finding]]:
        """The findings of the rules in the order of the diagnosis: each cause before its symptoms.

        Returns:
            The findings with the severities of their rules, and the active cause of each active
            symptom by the symptom's code.
        """
        problems = self.report().diagnosis.problems
        by_key = {(each.code, each.onset_step): each for each in self.engine.diagnosis().findings}
        ordered = [
            by_key[finding.code, finding.onset_step]
            for problem in problems
            for finding in problem.findings
        ]
        causes = {
            symptom.finding.code: problem.cause
            for problem in problems
            for symptom in problem.symptoms
            if problem.cause.active and is_alarm(problem.cause) and symptom.finding.active
        }
        return ordered, causes

    def advice(self, remedies: Iterable[str], framework: str | None = None) -> dict[str, Advice]:
        """Remedies by id, resolved for this run's settings and recent readings.

        Args:
            remedies: ids of the remedies.
            framework: framework whose keys they show; the run's own if None.
        """
        return self.advice_source().advice(remedies, framework)

    def advice_source(self) -> AdviceSource:
        """What the remedies depend on, at the current step."""
        return AdviceSource(
            knobs={**self._advice_facts(), **self._known_knobs()},
            framework=self.manifest.framework,
            readings=recent_readings(self.engine.chart),
            model=self.manifest.model,
            has_config=self._has_config(),
        )

    def _advice_facts(self) -> dict[str, Setting]:
        """Which weights are trained, and how a batch is divided, as far as it is known.

        Without a config, only a framework that trains adapters by default is known to.
        """
        facts = self.engine.chart.config.facts
        if not self._has_config():
            framework = find_framework(self.manifest.framework, configurable_frameworks())
            defaults = framework.knobs.read_facts({}) if framework else {}
            facts = {name: value for name, value in defaults.items() if value}
        return {name: facts[name] for name in _ADVICE_FACTS if name in facts}

    def _has_config(self) -> bool:
        """Whether the run's config was found. A run of our own recorder has its knobs instead."""
        if self.manifest.framework == Manifest().framework and self.manifest.knobs:
            return True
        framework = find_framework(self.manifest.framework, configurable_frameworks())
        return framework is not None and framework.knobs.reads_any_of(self.manifest.config)

    def _known_knobs(self) -> dict[str, Setting]:
        """The knobs without those that are only a framework's defaults, if no config was found."""
        knobs = self.engine.chart.knobs
        framework = find_framework(self.manifest.framework, configurable_frameworks())
        if framework is None or self._has_config():
            return knobs
        defaults = framework.knobs.read({})
        return {name: value for name, value in knobs.items() if name not in defaults}

    def _probe_notes(self) -> tuple[str, ...]:
        """The result of the attached probe, and the probe files that could not be read."""
        attached = self.attached_probes
        notes = [attached.probe.note] if attached.probe else []
        notes += [
            f"{damage.file} is not a probe result: {damage.why}"
            for damage in attached.damage[:_MAX_PROBE_DAMAGE]
        ]
        return tuple(notes)


def _least_missed(checkpoints: Sequence[int]) -> int:
    """The place of the checkpoint in the older half, but the first, that has the nearest neighbors.

    The only good checkpoint of a run may be an old one.
    """
    places = range(1, len(checkpoints) // 2)
    return min(places, key=lambda place: checkpoints[place + 1] - checkpoints[place - 1])


def _treatment(event: Event) -> TreatmentEntry:
    """An entry of bounded size: any process that may write to the journal chooses its texts."""
    body = {key: value for key, value in event.body.items() if key not in {"remedy", "step"}}
    return TreatmentEntry(
        step=event.step,
        kind=short(event.kind.removeprefix(_TREATMENT)),
        remedy=short(str(event.body.get("remedy", ""))),
        body=bounded(body),
    )

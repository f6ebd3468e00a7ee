"""An examination: a run's steps and events in, a report out. Live and offline share it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from grpodoctor.frameworks.spelling import Spelled, spell
from grpodoctor.frameworks.translation import Gaps
from grpodoctor.monitor.attached_probes import Attached
from grpodoctor.monitor.downsampled_series import Tracks
from grpodoctor.monitor.report import (
    Advice,
    DamagedLine,
    InapplicableRule,
    Report,
    ReportedFinding,
    RunFacts,
    SkippedRule,
    TreatmentEntry,
)
from grpodoctor.remedies.base import Remedy
from grpodoctor.remedies.catalogue import remedy_of
from grpodoctor.report.run.charts import PICTURED
from grpodoctor.rules.base import Finding, Rule
from grpodoctor.rules.engine import Change, Engine
from grpodoctor.runs.records import Event, Manifest, StepRecord
from grpodoctor.support.damage import Damage
from grpodoctor.vocabulary.knobs import Setting

DAMAGE_SHOWN = 50
"""Damaged lines named in a report; the rest are counted."""

TREATMENTS_SHOWN = 500
"""Journal lines kept: the latest, of a journal that may be long."""

_PACE_STEPS = 20
_TREATMENT = "treatment-"


class Examination:
    """One pass over a run: the rule engine, the courses to draw, the journal, the damage.

    Args:
        directory: the run directory, as the user gave it.
        manifest: the run's manifest.
        rules: the rules to examine it by.
    """

    def __init__(self, directory: Path, manifest: Manifest, rules: Sequence[Rule]) -> None:
        self.directory = directory
        self.manifest = manifest
        self.engine = Engine(rules, manifest)
        self.attached = Attached(directory)
        self.tracks = Tracks(PICTURED)
        self.treatments: deque[TreatmentEntry] = deque(maxlen=TREATMENTS_SHOWN)
        self.damage: list[DamagedLine] = []
        self.damage_total = 0
        self.notes: list[str] = []
        """How a foreign log was read."""
        self._unmapped: tuple[str, ...] = ()
        self._gaps: list[str] = []
        self.shown = ""
        """Where the run lies, if that is not where it is read."""
        self.finished = False
        self.steps = 0
        """Step lines read."""
        self._first_step: int | None = None
        self._times: deque[float] = deque(maxlen=_PACE_STEPS + 1)

    def observe(self, record: StepRecord) -> list[Change]:
        """Take a step; what it changed about the findings."""
        self.steps += 1
        if self._first_step is None or record.step < self._first_step:
            self._first_step = record.step
        self._times.append(record.time)
        self.finished = False
        self.tracks.observe(record)
        return self.engine.observe(self.attached.filled(record))

    def note(self, event: Event) -> None:
        """Take a line of the journal."""
        if event.kind.startswith(_TREATMENT):
            self.treatments.append(_treatment(event))
        elif event.kind == "finished":
            self.finished = True
        elif event.kind in {"started", "resumed"}:
            self.finished = False

    def note_damage(self, damage: Sequence[Damage], total: int | None = None) -> None:
        """Count damaged lines, and keep the first of them.

        Args:
            damage: damaged lines.
            total: how many there are, if `damage` names only some of them.
        """
        self.damage_total += len(damage) if total is None else total
        for each in damage[: DAMAGE_SHOWN - len(self.damage)]:
            self.damage.append(DamagedLine(each.file, each.line, each.why))

    def note_gaps(self, gaps: Gaps) -> None:
        """Take what of a foreign log was not used, and why; it replaces what was told before."""
        self._unmapped = tuple(sorted(gaps.unmapped))
        told = [f"{key} is not used: {lie}" for key, lie in sorted(gaps.refused.items())]
        told += [
            f"{key} is not used: what it means depends on {what}"
            for key, what in sorted(gaps.undecided.items())
        ]
        self._gaps = told

    @property
    def last_time(self) -> float:
        """Unix time of the latest step; 0 if unknown."""
        return self._times[-1] if self._times else 0.0

    @property
    def steps_per_minute(self) -> float | None:
        """Pace over the latest steps; None until there are two with a time."""
        known = [time for time in self._times if time > 0]
        if len(known) < 2 or known[-1] <= known[0]:
            return None
        return 60 * (len(known) - 1) / (known[-1] - known[0])

    def facts(self) -> RunFacts:
        """Which run it is, and how much of it was read."""
        return RunFacts(
            path=self.shown or str(self.directory),
            framework=self.manifest.framework,
            first_step=self._first_step,
            last_step=self.engine.chart.step if self.steps else None,
            steps=self.steps,
            model=self.manifest.model,
            seed=self.manifest.seed,
            started=self.manifest.started,
        )

    def report(self, framework: str | None = None) -> Report:
        """Everything known so far, its remedies spelled for `framework` (or the run's own)."""
        diagnosis = self.engine.diagnosis()
        knobs, spoken = self.engine.chart.knobs, framework or self.manifest.framework
        return Report(
            run=self.facts(),
            findings=tuple(report_finding(each, knobs, spoken) for each in diagnosis.findings),
            skipped=tuple(
                SkippedRule(each.code, each.missing, each.how) for each in diagnosis.skipped
            ),
            not_applicable=tuple(
                InapplicableRule(each.code, each.why) for each in diagnosis.not_applicable
            ),
            quiet=diagnosis.quiet,
            unmapped=diagnosis.unmapped + self._unmapped,
            notes=(*self.notes, *self._gaps, *self._probe_notes()),
            damage=tuple(self.damage),
            damage_total=self.damage_total,
            treatments=tuple(self.treatments),
        )

    def _probe_notes(self) -> tuple[str, ...]:
        """What a probe that is attached to the run has found, and files there that are none."""
        told = [] if self.attached.probe is None else [self.attached.probe.note]
        told += [f"{each.file} is no probe: {each.why}" for each in self.attached.damage[:3]]
        return tuple(told)


def report_finding(
    finding: Finding, knobs: Mapping[str, Setting], framework: str
) -> ReportedFinding:
    """A finding with its remedies resolved under the knobs in force."""
    return ReportedFinding(
        code=finding.code,
        name=finding.name,
        severity=finding.severity,
        onset_step=finding.onset_step,
        last_step=finding.last_step,
        active=finding.active,
        summary=finding.summary,
        evidence=finding.evidence,
        remedies=tuple(_advice(each, knobs, framework) for each in finding.remedies),
        references=finding.references,
    )


def _advice(remedy_id: str, knobs: Mapping[str, Setting], framework: str) -> Advice:
    remedy = remedy_of(remedy_id)
    change = remedy.change(knobs)
    return Advice(
        id=remedy.id,
        title=remedy.title,
        applicability=remedy.applicability,
        change=change,
        spelling=_spelling(remedy, change, knobs, framework),
    )


def _spelling(
    remedy: Remedy, change: Mapping[str, Setting], knobs: Mapping[str, Setting], framework: str
) -> tuple[Spelled, ...]:
    if not change and remedy.how:
        further = spell(remedy.restart_with, framework)
        return (Spelled("", "", remedy.how), *(each for each in further if each.key))
    return tuple(spell(change, framework, knobs))


def _treatment(event: Event) -> TreatmentEntry:
    body = {key: value for key, value in event.body.items() if key not in {"remedy", "step"}}
    return TreatmentEntry(
        step=event.step,
        kind=event.kind.removeprefix(_TREATMENT),
        remedy=str(event.body.get("remedy", "")),
        body=body,
    )

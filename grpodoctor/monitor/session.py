"""Following a live run: poll, examine, treat. The screen, the demo and a dashboard sit on this."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpodoctor.errors import ConfigError, RunError
from grpodoctor.monitor.examination import Examination, report_finding
from grpodoctor.monitor.report import evidence_to_json
from grpodoctor.monitor.snapshot import Snapshot, TreatmentState
from grpodoctor.monitor.vitals import vital_signs
from grpodoctor.remedies.catalogue import all_remedies
from grpodoctor.rules import catalogue
from grpodoctor.rules.engine import Change
from grpodoctor.runs.reading.follower import Follower, Poll
from grpodoctor.runs.reading.framework_follower import ForeignFollower, ReadOptions
from grpodoctor.runs.reading.opening import Followed, follow, open_run
from grpodoctor.runs.records import Event, Manifest, StepRecord
from grpodoctor.treatment.doctor import Apply, Doctor, DoctorSettings
from grpodoctor.treatment.mailbox import Mailbox
from grpodoctor.treatment.requests import note_request

_NEWS = {"started", "resumed", "finished", "warning"}
"""Kinds of journal lines, beside treatments, that are passed on as they come."""

_FINDING_KEYS = ("code", "onset_step", "severity")
_Line = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Tick:
    """What one look at the run brought."""

    restarted: bool = False
    """Another run stands in the directory; what was known before is gone."""
    steps: int = 0
    """How many new steps there were."""
    changes: tuple[Change, ...] = ()
    """Findings raised, escalated and resolved."""
    events: tuple[Event, ...] = ()
    """New lines of the run's journal."""
    more: bool = False
    """There is more to read at once."""
    held: bool = False
    """A look in a moment brings something, whether or not the run writes more."""


class Session:
    """A run under observation.

    Args:
        run_dir: the run directory; it need not exist yet.
        select: rules to run, by code or prefix; empty for all.
        ignore: rules not to run.
        apply: which remedies the doctor may apply to the run.
        settings: how patient the doctor is.
        options: what the user says about a foreign log.

    Raises:
        ConfigError: if a selector matches no rule, or if remedies are to be applied to a run that
            another framework logs.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        select: Sequence[str] = (),
        ignore: Sequence[str] = (),
        apply: Apply = "none",
        settings: DoctorSettings | None = None,
        options: ReadOptions | None = None,
    ) -> None:
        self.run_dir = run_dir
        self.apply = apply
        self.waiting = True
        """Nothing of the run is there yet."""
        self.trouble = ""
        """Why the latest request could not be sent."""
        self._settings = settings
        self._rules = catalogue.select(catalogue.all_rules(), select, ignore)
        self._options = options
        self._follower = self._follow()
        self._mailbox = Mailbox(run_dir)
        self._begin(Manifest())

    def _begin(self, manifest: Manifest) -> None:
        self.examination = Examination(self.run_dir, manifest, self._rules)
        self.doctor = Doctor(all_remedies(), self.apply, self._settings)
        self._unsent: list[Event] = []
        self._journalled: set[_Line] = set()

    def _follow(self) -> Followed:
        follower = follow(self.run_dir, self._options)
        if self.apply != "none" and isinstance(follower, ForeignFollower):
            raise ConfigError(
                "nothing can be applied to a run that only leaves its log: no request reaches it",
                where=str(self.run_dir)[:200],
                remedy="leave out --apply and change by hand what is advised",
            )
        return follower

    def tick(self, *, final: bool = False) -> Tick:
        """Read what the run has written since the last look, and treat it if that is allowed.

        Args:
            final: whether nobody writes any more, so that nothing is worth waiting for.

        Raises:
            RunError: if the run cannot be read, or a newer version wrote it.
            ConfigError: if another framework turns out to log a run that is to be treated.
        """
        poll = self._poll(final)
        self._take_manifest(poll)
        if poll.restarted or poll.manifest is not None or poll.steps:
            self.waiting = poll.manifest is None and not poll.steps
        self._note_reading(poll)
        changes = [change for record in poll.steps for change in self._observe(record)]
        for event in poll.events:
            self.examination.note(event)
            self._journalled.add(_line(event))
        self.doctor.hear(poll.events)
        if poll.steps and not poll.more and not self.examination.finished:
            self._treat()
        return Tick(
            poll.restarted,
            len(poll.steps),
            tuple(changes),
            tuple(poll.events),
            poll.more,
            poll.held,
        )

    def _poll(self, final: bool) -> Poll:
        """What is new; a path that did not exist may turn out to be another framework's log."""
        if self.waiting and isinstance(self._follower, Follower):
            self._follower = self._follow()
        return self._follower.poll(final=final)

    def _note_reading(self, poll: Poll) -> None:
        """What was decided about a foreign log, and what of it is not used."""
        self.examination.notes += poll.notes
        self.examination.note_damage(poll.damage)
        if isinstance(self._follower, ForeignFollower) and self._follower.translator is not None:
            self.examination.note_gaps(self._follower.translator.gaps)

    def _observe(self, record: StepRecord) -> list[Change]:
        changes = self.examination.observe(record)
        if self.apply != "none":
            self._unsent += [_journal_line(change, record.step) for change in changes]
        return changes

    def _treat(self) -> None:
        """Ask of the run what the doctor wants, and have the findings written into its journal."""
        engine = self.examination.engine
        requests = self.doctor.observe(engine.chart, engine.diagnosis().findings)
        fresh = [event for event in self._unsent if _line(event) not in self._journalled]
        notes = [note_request(event, "/".join(map(str, _line(event)))[:100]) for event in fresh]
        self._journalled.update(map(_line, fresh))
        self._unsent.clear()
        try:
            for request in (*notes, *requests):
                self._mailbox.send(request)
            self.trouble = ""
        except RunError as error:
            self.trouble = str(error)

    def _take_manifest(self, poll: Poll) -> None:
        if poll.restarted or (poll.manifest is not None and not self.examination.steps):
            self._begin(poll.manifest or Manifest())
        elif poll.manifest is not None:
            self.examination.manifest = poll.manifest

    def read_all(self) -> None:
        """Read all there is.

        Raises:
            RunError: if there is no run to read.
        """
        open_run(self.run_dir, self._options)
        while self.tick(final=True).more:
            pass
        if self.waiting:
            raise RunError(
                "a single file cannot be followed",
                where=str(self.run_dir),
                remedy="give the directory of a run, or use check",
            )

    def news(self, tick: Tick) -> list[dict[str, Any]]:
        """What a tick brought, by step, as objects for programs.

        Findings are `finding-raised`, `-escalated` or `-resolved` with the `finding` as a report
        has it; lines of the run's journal stand as they are; `restarted` comes first.
        """
        found = [self._finding_news(change) for change in tick.changes]
        told = [
            {**event.body, "kind": event.kind, "step": event.step}
            for event in tick.events
            if event.kind in _NEWS or event.kind.startswith("treatment-")
        ]
        news = sorted([*found, *told], key=lambda each: int(each["step"]))
        restart = {"kind": "restarted", "run": self.examination.facts().to_json()}
        return [restart, *news] if tick.restarted else news

    def _finding_news(self, change: Change) -> dict[str, Any]:
        chart, framework = self.examination.engine.chart, self.examination.manifest.framework
        finding = report_finding(change.finding, chart.knobs, framework)
        return {
            "kind": f"finding-{change.kind}",
            "step": change.step,
            "finding": finding.to_json(),
        }

    def snapshot(self) -> Snapshot:
        """What a screen shows now."""
        examination = self.examination
        report = examination.report()
        last_time = examination.last_time or self._written_at()
        return Snapshot(
            facts=report.run,
            waiting=self.waiting,
            finished=examination.finished,
            apply=self.apply,
            steps_per_minute=examination.steps_per_minute,
            age=max(0.0, time.time() - last_time) if last_time > 0 else None,
            vitals=tuple(vital_signs(examination.engine.chart)),
            findings=report.findings,
            treatment=self._treatment_state(),
            journal=report.treatments,
            skipped=report.skipped,
            quiet=len(report.quiet),
            not_applicable=len(report.not_applicable),
            damage_total=report.damage_total,
            trouble=self.trouble,
        )

    def _written_at(self) -> float:
        """When the log was written to last, for logs that do not say the time of their steps."""
        follower = self._follower
        return follower.written_at() if isinstance(follower, ForeignFollower) else 0.0

    def _treatment_state(self) -> TreatmentState | None:
        progress = self.doctor.progress(self.examination.engine.chart)
        if progress is None:
            return None
        return TreatmentState(
            remedy=progress.treatment.remedy,
            state=progress.treatment.state,
            waited=progress.waited,
            patience=progress.patience,
            metric=progress.metric,
            before=progress.before,
            now=progress.now,
        )


def _line(event: Event) -> _Line:
    """What tells one journal line about a finding from another."""
    code, onset, severity = (str(event.body.get(key, "")) for key in _FINDING_KEYS)
    return event.kind, code, onset, severity


def _journal_line(change: Change, step: int) -> Event:
    finding = change.finding
    body = {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity,
        "onset_step": finding.onset_step,
        "summary": finding.summary,
        "evidence": [evidence_to_json(each) for each in finding.evidence],
    }
    return Event(f"finding-{change.kind}", step, body)

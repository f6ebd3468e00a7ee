"""A live run under observation: read new steps, examine them, treat the run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from grpodoctor.errors import ConfigError, RunError
from grpodoctor.monitor.diagnosis.costs import gpus_of
from grpodoctor.monitor.examination import SWITCHED, Examination
from grpodoctor.monitor.project_settings import ProjectSettings
from grpodoctor.monitor.report import evidence_to_json, finding_to_json
from grpodoctor.monitor.sample_responses import RecordedResponses, ResponseSource
from grpodoctor.monitor.snapshot import Snapshot, TreatmentState
from grpodoctor.monitor.vitals import vital_signs
from grpodoctor.remedies.catalogue import all_remedies
from grpodoctor.rules.base import Finding
from grpodoctor.rules.diagnosis import Change
from grpodoctor.runs.reading.framework_follower import FrameworkFollower
from grpodoctor.runs.reading.native_run import NativeFollower
from grpodoctor.runs.reading.opening import RunFollower, follow, is_native, log_of, open_run
from grpodoctor.runs.reading.poll import Poll
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.runs.records import Event, Manifest, StepRecord
from grpodoctor.runs.series import WINDOW
from grpodoctor.support.progress import Progress
from grpodoctor.treatment.doctor import Doctor, TreatmentMode
from grpodoctor.treatment.doctor_settings import DoctorSettings
from grpodoctor.treatment.mailbox import Mailbox
from grpodoctor.treatment.requests import Request, note_request

_NEWS = {"started", "resumed", "finished", "warning"}
"""Kinds of journal lines that are reported as news, in addition to treatments."""

_IDENTITY_KEYS = ("code", "onset_step", "severity")
_JournalKey = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Tick:
    """The result of one poll of the run."""

    restarted: bool = False
    """Whether the previous run is gone, so that its state was discarded."""
    replaced: Literal["", "restarted", "removed"] = ""
    """What became of the previous run, once that is known: another one follows, or nothing does.
    Files of a directory vanish one by one, so it may be known later than `restarted`."""
    steps: int = 0
    """Number of new steps."""
    changes: tuple[Change, ...] = ()
    """Findings that were raised, escalated or resolved."""
    events: tuple[Event, ...] = ()
    """New lines of the run's journal."""
    more: bool = False
    """Whether more data can be read immediately."""
    held: bool = False
    """Whether the next poll returns more data even if the run writes nothing new."""


class Session:
    """A run under observation.

    Args:
        run_dir: the run directory; it need not exist yet.
        select: rules to run, by code or prefix; empty for all.
        ignore: rules to skip.
        apply: which remedies the doctor may apply to the run.
        settings: waiting times of the doctor.
        project: the project's settings; `select` and `ignore` override them.
        options: how to read the log of a framework.
        on_step: called after each step was examined; a tick of a long run takes seconds.

    Raises:
        ConfigError: if a selector matches no rule, or if `apply` is not `none` and another
            framework logs the run.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        select: Sequence[str] = (),
        ignore: Sequence[str] = (),
        apply: TreatmentMode = "none",
        settings: DoctorSettings | None = None,
        project: ProjectSettings | None = None,
        options: ReadOptions | None = None,
        on_step: Callable[[StepRecord], None] | None = None,
    ) -> None:
        self.run_dir = run_dir
        self._on_step = on_step
        self.apply = apply
        self.waiting = True
        """Whether the run has not written anything yet."""
        self.send_error = ""
        """Why the latest request could not be sent."""
        project = project or ProjectSettings()
        self._settings = (settings or DoctorSettings()).with_safe(project.extend_safe_fixes)
        self._rules = project.rules(select, ignore)
        self._options = options
        self._follower = self._follow()
        self._mailbox = Mailbox(run_dir)
        self._is_previous_open = False
        """Whether a run is gone, and it is not known yet whether another one follows."""
        self._begin(Manifest())

    def _begin(self, manifest: Manifest) -> None:
        self.examination = Examination(self.run_dir, manifest, self._rules)
        self.doctor = Doctor(all_remedies(), self.apply, self._settings)
        self._unsent: list[Event] = []
        self._journaled: set[_JournalKey] = set()

    def _follow(self) -> RunFollower:
        follower = follow(self.run_dir, self._options)
        if self.apply != "none" and isinstance(follower, FrameworkFollower):
            raise ConfigError(
                "cannot apply remedies: this run has only a log and accepts no requests",
                where=str(self.run_dir)[:200],
                remedy="remove --apply and change the settings by hand",
            )
        return follower

    def tick(self, *, final: bool = False) -> Tick:
        """Read what the run wrote since the previous poll, and treat it if that is allowed.

        Args:
            final: whether the run has ended, so that incomplete steps are read at once.

        Raises:
            RunError: if the run cannot be read, or was written by a newer version.
            ConfigError: if `apply` is not `none` and another framework logs the run.
        """
        poll = self._poll(final)
        self._take_manifest(poll)
        if poll.restarted or poll.manifest is not None or poll.steps:
            self.waiting = poll.manifest is None and not poll.steps
        self._is_previous_open |= poll.restarted
        self._note_reading(poll)
        changes = [change for record in poll.steps for change in self._observe(record)]
        for event in poll.events:
            self.examination.note(event)
            self._journaled.add(_journal_key(event))
        self.doctor.read_events(poll.events)
        if poll.steps and not poll.more and not self.examination.finished:
            self._treat()
        return Tick(
            restarted=poll.restarted,
            replaced=self._replaced(),
            steps=len(poll.steps),
            changes=tuple(changes),
            events=tuple(poll.events),
            more=poll.more,
            held=poll.pending,
        )

    def _replaced(self) -> Literal["", "restarted", "removed"]:
        """What became of the previous run; empty if nothing new is known."""
        if not self._is_previous_open:
            return ""
        is_gone = not self.run_dir.exists()
        if self.waiting and not is_gone:
            return ""
        self._is_previous_open = False
        return "removed" if is_gone else "restarted"

    def _poll(self, final: bool) -> Poll:
        """The new data; the origin of a run is known once it has written something.

        A path that did not exist may then hold the log of a framework, and a directory with nothing
        but a lock a run of our own recorder.
        """
        is_native_or_unknown = isinstance(self._follower, NativeFollower)
        if self.waiting and (is_native_or_unknown or _is_recorded(self.run_dir)):
            self._follower = self._follow()
        return self._follower.poll(final=final)

    def _note_reading(self, poll: Poll) -> None:
        """Pass on how the log was read: the detected format, damaged lines, unused keys."""
        self.examination.notes += poll.notes
        self.examination.note_damage(poll.damage)
        self.examination.log = str(log_of(self.run_dir, self._follower))
        if isinstance(self._follower, FrameworkFollower):
            self.examination.crash = self._follower.crash
        if isinstance(self._follower, FrameworkFollower) and self._follower.translator is not None:
            self.examination.note_unused_keys(self._follower.translator.unused)
            self.examination.gpus = gpus_of(self._follower.translator.given)

    def _observe(self, record: StepRecord) -> list[Change]:
        changes = self.examination.observe(record)
        if self.apply != "none":
            self._unsent += [_journal_event(change, record.step) for change in changes]
        if self._on_step is not None:
            self._on_step(record)
        return changes

    def _treat(self) -> None:
        """Send the doctor's requests to the run, and new findings to its journal."""
        requests: list[Request] = []
        if self.apply != "none":
            findings, causes = self.examination.findings_by_cause()
            requests = self.doctor.observe(self.examination.engine.chart, findings, (), causes)
        fresh = [event for event in self._unsent if _journal_key(event) not in self._journaled]
        notes = [
            note_request(event, "/".join(map(str, _journal_key(event)))[:100]) for event in fresh
        ]
        self._journaled.update(map(_journal_key, fresh))
        self._unsent.clear()
        try:
            self._send((*notes, *requests))
        except RunError as error:
            self.send_error = str(error)

    def _send(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self._mailbox.send(request)
        self.send_error = ""

    def approve(self, treatment_id: str) -> None:
        """Request the proposed treatment from the run.

        Raises:
            ConfigError: if it is no longer proposed, or the run has finished.
            RunError: if the request cannot be sent.
        """
        if self.examination.finished:
            raise ConfigError("the run has finished", where=str(self.run_dir)[:200])
        self._send(self.doctor.approve(treatment_id, self.examination.engine.chart.step))

    def decline(self, treatment_id: str) -> None:
        """Withdraw the proposed treatment; its remedy is not proposed again in this run.

        Raises:
            ConfigError: if it is no longer proposed.
        """
        self.doctor.decline(treatment_id)

    def _take_manifest(self, poll: Poll) -> None:
        if poll.restarted or (poll.manifest is not None and not self.examination.steps):
            self._begin(poll.manifest or Manifest())
        elif poll.manifest is not None:
            self.examination.manifest = poll.manifest

    def read_all(self, progress: Progress | None = None) -> None:
        """Read all steps and events that the run has written.

        Args:
            progress: receives the number of steps read.

        Raises:
            RunError: if there is no run to read.
        """
        open_run(self.run_dir, self._options)
        more = True
        while more:
            more = self.tick(final=True).more
            if progress:
                progress.update(self.examination.steps)
        if self.waiting:
            raise RunError(
                "a single file cannot be followed",
                where=str(self.run_dir),
                remedy="pass the run directory, or use grpodoctor check",
            )

    def news(self, tick: Tick) -> list[dict[str, Any]]:
        """The events of a tick as JSON objects, ordered by step.

        `finding-raised`, `finding-escalated` and `finding-resolved` hold the `finding` as in a
        report. If it is a symptom at present, `cause` is the code of its cause, otherwise None.
        At one step, causes come before symptoms. Lines of the run's journal are unchanged; those of
        blocks are left out. `restarted`, or `removed` if the path is gone, comes first.
        """
        causes = self.examination.findings_by_cause()[1] if tick.changes else {}
        findings = [self._finding_news(change, causes) for change in tick.changes]
        journal = [
            {**event.body, "kind": event.kind, "step": event.step}
            for event in tick.events
            if event.kind in _NEWS
            or (event.kind.startswith("treatment-") and event.kind != SWITCHED)
        ]
        news = sorted(
            [*findings, *journal], key=lambda each: (int(each["step"]), bool(each.get("cause")))
        )
        if not tick.replaced:
            return news
        return [{"kind": tick.replaced, "run": self.examination.facts().to_json()}, *news]

    def _finding_news(self, change: Change, causes: Mapping[str, Finding]) -> dict[str, Any]:
        cause = causes.get(change.finding.code)
        advice = self.examination.advice(change.finding.remedies)
        return {
            "kind": f"finding-{change.kind}",
            "step": change.step,
            "finding": finding_to_json(change.finding, advice),
            "cause": cause.code if cause else None,
        }

    def snapshot(self) -> Snapshot:
        """The state that a screen shows now."""
        examination = self.examination
        report = examination.report()
        coverage = report.diagnosis.coverage
        last_time = examination.last_time or self.written_at()
        return Snapshot(
            report=report,
            facts=report.run,
            verdict=report.diagnosis.verdict if examination.steps else None,
            waiting=self.waiting,
            finished=examination.finished,
            apply=self.apply,
            steps_per_minute=examination.steps_per_minute,
            age=max(0.0, time.time() - last_time) if last_time > 0 else None,
            vitals=tuple(vital_signs(examination.engine.chart, WINDOW)),
            findings=report.findings,
            treatment=self._treatment_state(),
            proposal=None if examination.finished else self.doctor.proposal,
            journal=report.treatments,
            skipped=coverage.blocked,
            quiet=len(report.quiet),
            not_applicable=len(report.not_applicable) + len(coverage.omitted),
            damage_total=report.damage_total,
            send_error=self.send_error,
        )

    @property
    def responses(self) -> ResponseSource:
        """The responses of the steps that were read so far."""
        follower = self._follower
        if isinstance(follower, FrameworkFollower):
            return follower.rollouts
        return RecordedResponses(follower.path)

    def written_at(self) -> float:
        """Time of the last write to the log, for logs that do not record the time of a step."""
        follower = self._follower
        return follower.written_at() if isinstance(follower, FrameworkFollower) else 0.0

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
            untreated=progress.untreated,
            treated=progress.treated,
        )


def _is_recorded(path: Path) -> bool:
    return path.is_dir() and is_native(path)


def _journal_key(event: Event) -> _JournalKey:
    """The identity of a journal line about a finding."""
    code, onset, severity = (str(event.body.get(key, "")) for key in _IDENTITY_KEYS)
    return event.kind, code, onset, severity


def _journal_event(change: Change, step: int) -> Event:
    finding = change.finding
    body = {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity,
        "onset_step": finding.onset_step,
        "summary": finding.summary,
        "evidence": [evidence_to_json(evidence) for evidence in finding.evidence],
    }
    return Event(f"finding-{change.kind}", step, body)

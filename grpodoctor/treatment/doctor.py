"""Chooses a remedy for a live run, waits, and keeps it or undoes it.

One treatment at a time:

    idle → proposed → applied → kept
                │        └────→ undoing → undone
                ├→ refused                          then a cool-down, then idle
                └→ forgotten (no answer; the run rewound, restarted or ended)

With `ask`, a proposal waits for a person's approval before it is sent. It does not time out; it is
withdrawn when its finding resolves, or when its knobs change.

The doctor reads no clock and no disk. It receives the chart, the findings and the journal, and its
caller sends its requests. The journal alone holds the whole state: a doctor that reads the journal
of an earlier doctor continues its treatment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from grpodoctor.errors import ConfigError
from grpodoctor.remedies.base import Remedy, Slot
from grpodoctor.remedies.recent_readings import recent_readings
from grpodoctor.rules.base import SEVERITIES, Finding
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.records import Event
from grpodoctor.support.safe_text import printable
from grpodoctor.treatment.assessment import BEFORE, assess, compare, readings_since
from grpodoctor.treatment.requests import Request, note_request
from grpodoctor.treatment.treatments import State, Treatment, treatment_from_event
from grpodoctor.vocabulary.knobs import Setting

Apply = Literal["none", "safe", "unsafe"]
"""Remedies that may be applied: none, the safe ones, or the unsafe ones as well."""

TreatmentMode = Apply | Literal["ask"]
"""The same, or with `ask` those that a person approves one by one."""

HISTORY = 200
"""Closed treatments kept in memory; older ones remain in the journal."""


class DoctorSettings(BaseModel):
    """Waiting times of the doctor, in steps of the run, and further remedies that are safe."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    wait_steps: int = Field(12, ge=6, le=10_000)
    """Steps from applying a treatment to assessing it; the later half of them is compared."""
    fewest_readings: int = Field(6, ge=6, le=10_000)
    """Target readings required for the assessment, which waits at most twice `wait_steps`."""
    answer_steps: int = Field(20, ge=1, le=10_000)
    """Steps within which the run must answer. An observer reads several steps at a time, and the
    run takes requests between two steps."""
    cool_down_steps: int = Field(12, ge=0, le=10_000)
    """Steps between the end of a treatment and the next one, so that their effects do not mix."""
    safe_remedies: frozenset[str] = frozenset()
    """Ids of unsafe remedies that the user declares to be safe."""

    def with_safe(self, remedies: Iterable[str]) -> DoctorSettings:
        """The same settings with further safe remedies."""
        return self.model_copy(update={"safe_remedies": self.safe_remedies.union(remedies)})


@dataclass(frozen=True, slots=True)
class TreatmentProgress:
    """State of the treatment in progress, for a screen."""

    treatment: Treatment
    waited: int
    """Steps since it was applied."""
    patience: int
    """Steps after which it is assessed."""
    metric: str
    """The first target."""
    before: float | None
    now: float | None


class Doctor:
    """Treats one run.

    Args:
        remedies: the remedies to choose from.
        apply: which of them may be applied; with `none` the doctor only reads the journal.
        settings: waiting times.
    """

    def __init__(
        self,
        remedies: Iterable[Remedy],
        apply: TreatmentMode = "none",
        settings: DoctorSettings | None = None,
    ) -> None:
        self._remedies = {remedy.id: remedy for remedy in remedies}
        self.apply = apply
        self.settings = settings or DoctorSettings()
        self.current: Treatment | None = None
        """The treatment in progress."""
        self.history: deque[Treatment] = deque(maxlen=HISTORY)
        """Closed treatments, oldest first."""
        self.proposal: Treatment | None = None
        """With `ask`, the treatment that waits for approval; nothing about it was sent."""
        self._proposed_for: Finding | None = None
        self._excluded: set[str] = set()
        """Remedies that did not help, were refused or got no answer in this run."""
        self._step = -1
        self._idle_until = -1
        self._count = 0
        self._competing: Treatment | None = None
        """Another observer's treatment, applied before the run answered the request for ours."""
        self._outbox: dict[str, Request] = {}
        """Unsent requests by id; a note that is already in the journal is removed."""

    def observe(
        self, chart: Chart, findings: Sequence[Finding], events: Iterable[Event] = ()
    ) -> list[Request]:
        """Take the state of the run after its latest step, and return the requests to send.

        Args:
            chart: the run so far.
            findings: the findings of the rules, active or not.
            events: journal lines since the last call, in order; at the first call all of them.

        Returns:
            Requests to send, in order.
        """
        self.read_events(events)
        if self.apply == "none":
            self._outbox.clear()
            return []
        if chart.step < self._step:
            self._abandon(f"the run rewound to step {chart.step}", chart.step)
            self._idle_until = min(self._idle_until, chart.step + self.settings.cool_down_steps)
        self._step = chart.step
        if self.current is not None:
            self.proposal = None
            self._continue(self.current, chart, findings)
        elif chart.step >= self._idle_until and chart.steps_seen >= BEFORE:
            # Earlier there is no level before the treatment to compare with.
            self._propose(chart, findings)
        return self._take_requests()

    def _take_requests(self) -> list[Request]:
        requests = list(self._outbox.values())
        self._outbox.clear()
        return requests

    def approve(self, treatment_id: str, step: int) -> list[Request]:
        """Start the proposed treatment, and return the requests to send.

        Args:
            treatment_id: the treatment that the person saw.
            step: the run's latest step.

        Raises:
            ConfigError: if this treatment is no longer proposed.
        """
        proposal, finding = self._waiting_proposal(treatment_id)
        self._start(replace(proposal, proposed_step=step, requested_step=step), finding)
        return self._take_requests()

    def decline(self, treatment_id: str) -> None:
        """Withdraw the proposal and do not propose its remedy again in this run.

        Raises:
            ConfigError: if this treatment is no longer proposed.
        """
        proposal, _ = self._waiting_proposal(treatment_id)
        self._excluded.add(proposal.remedy)
        self.proposal = None

    def _waiting_proposal(self, treatment_id: str) -> tuple[Treatment, Finding]:
        proposal, finding = self.proposal, self._proposed_for
        if proposal is None or finding is None or proposal.id != treatment_id:
            raise ConfigError(
                "this treatment is no longer proposed",
                where=printable(treatment_id),
                remedy="look at the current proposal",
            )
        return proposal, finding

    def progress(self, chart: Chart) -> TreatmentProgress | None:
        """The progress of the current treatment; None if there is none."""
        treatment = self.current
        if treatment is None:
            return None
        target = self._remedies[treatment.remedy].target
        applied = treatment.applied_step
        readings = [] if applied is None else readings_since(chart, target.metric, applied)
        comparison = None if applied is None else compare(chart, target, "target", applied)
        return TreatmentProgress(
            treatment=treatment,
            waited=0 if applied is None else max(0, chart.step - applied + 1),
            patience=self.settings.wait_steps,
            metric=target.metric,
            before=comparison.before if comparison else None,
            now=readings[-1] if readings else None,
        )

    # Events written by the run and by other observers

    def read_events(self, events: Iterable[Event]) -> None:
        """Take journal lines, old or new, and update the treatments that they concern."""
        for event in events:
            if event.kind in {"started", "resumed", "finished"}:
                self._on_run_event(event)
            elif event.kind == "treatment-proposed":
                self._on_proposed(event)
            elif event.kind == "treatment-applied":
                self._on_applied(event)
            elif event.kind == "treatment-refused":
                self._on_refused(event)
            elif event.kind in {"treatment-kept", "treatment-undone", "treatment-forgotten"}:
                self._on_closed(event)

    def _on_run_event(self, event: Event) -> None:
        self._abandon(f"the run {event.kind} at step {event.step}", event.step)
        self.proposal = None
        self._step = self._idle_until = -1
        if event.kind == "started":
            self._excluded.clear()

    def _on_proposed(self, event: Event) -> None:
        """Continue the treatment of an earlier doctor, or of another observer."""
        treatment = treatment_from_event(event)
        if treatment is None or treatment.remedy not in self._remedies:
            return
        if self.current is None and self._closed(treatment.id) is None:
            self._count += 1
            self.current = treatment

    def _on_applied(self, event: Event) -> None:
        if event.body.get("request") == "undo":
            self._on_undone(event)
            return
        proposed = treatment_from_event(event)
        if proposed is None or proposed.remedy not in self._remedies:
            return
        applied = replace(proposed, state="applied", applied_step=event.step)
        closed = self._closed(proposed.id)
        if self._concerns_current(event):
            self._mark_applied(applied)
        elif closed is not None:
            if closed.state == "forgotten":
                self._request("undo", applied)
        elif self.current is None:
            self._count += 1
            self.current = applied
        elif self.current.state == "proposed" and self._competing is None:
            self._competing = applied
        else:
            self._undo_competing(applied)

    def _on_undone(self, event: Event) -> None:
        treatment_id = str(event.body.get("treatment_id"))
        self._outbox.pop(f"{treatment_id}/undo", None)
        closed = self._closed(treatment_id)
        if self._concerns_current(event):
            self._close("undone", event.step, exclude=True)
        elif closed is not None and closed.state == "kept":
            # Another observer requested it; this doctor does not apply the remedy again.
            self._excluded.add(closed.remedy)
            verdict = "undone at the request of another observer"
            undone = replace(closed, state="undone", verdict=verdict)
            self.history[self.history.index(closed)] = undone
            self._note(undone.closing(event.step), undone)

    def _mark_applied(self, applied: Treatment) -> None:
        if self.current is None or self.current.state != "proposed":
            return
        self.current = replace(
            self.current,
            state="applied",
            applied_step=applied.applied_step,
            before=applied.before,
        )
        if self._competing is not None:
            self._undo_competing(self._competing)
            self._competing = None

    def _undo_competing(self, competing: Treatment) -> None:
        """Undo another observer's treatment, since the effects of two cannot be separated."""
        step = competing.applied_step or 0
        verdict = "another treatment was in progress, so this one is undone"
        closed = replace(competing, state="forgotten", closed_step=step, verdict=verdict)
        self.history.append(closed)
        self._note(closed.closing(step), closed)
        self._request("undo", closed)

    def _on_refused(self, event: Event) -> None:
        treatment = self.current
        if treatment is None or not self._concerns_current(event):
            return
        reason = str(event.body.get("reason", "no reason given"))[:300]
        if treatment.state == "proposed":
            self._close(
                "refused", event.step, f"the run refused the change: {reason}", exclude=True
            )
            self._idle_until = -1
        elif treatment.state == "undoing":
            verdict = f"{treatment.verdict}; the run refused to undo it: {reason}"
            self._close("forgotten", event.step, verdict, exclude=True)

    def _on_closed(self, event: Event) -> None:
        kind = event.kind.removeprefix("treatment-")
        self._outbox.pop(f"{event.body.get('treatment_id')}/{kind}", None)
        if not self._concerns_current(event):
            return
        states: dict[str, State] = {"kept": "kept", "undone": "undone", "forgotten": "forgotten"}
        verdict = str(event.body.get("verdict", ""))[:1000]
        self._close(states[kind], event.step, verdict, exclude=kind == "undone", note=False)

    def _concerns_current(self, event: Event) -> bool:
        return self.current is not None and event.body.get("treatment_id") == self.current.id

    def _closed(self, treatment_id: str) -> Treatment | None:
        matches = (treatment for treatment in self.history if treatment.id == treatment_id)
        return next(matches, None)

    # Decisions of this doctor

    def _propose(self, chart: Chart, findings: Sequence[Finding]) -> None:
        if self.proposal is not None and self._still_fits(self.proposal, chart, findings):
            return
        self.proposal = None
        choice = self._choose(chart, findings)
        if choice is None:
            return
        finding, remedy, changes = choice
        self._count += 1
        treatment = Treatment(
            id=f"{self._count}-{remedy.id}@{chart.step}",
            remedy=remedy.id,
            finding=finding.code,
            changes=changes,
            before={name: chart.knobs[name] for name in changes},
            proposed_step=chart.step,
            requested_step=chart.step,
        )
        if self.apply == "ask":
            self.proposal, self._proposed_for = treatment, finding
        else:
            self._start(treatment, finding)

    def _start(self, treatment: Treatment, finding: Finding) -> None:
        self.current, self.proposal = treatment, None
        self._note(treatment.proposal(finding), treatment)
        self._request("apply", treatment)

    def _still_fits(self, proposal: Treatment, chart: Chart, findings: Sequence[Finding]) -> bool:
        """Whether a proposal's finding is active, and its knobs and its obstacle are as before."""
        is_active = any(each.active and each.code == proposal.finding for each in findings)
        obstacle = self._remedies[proposal.remedy].obstacle(chart.knobs, recent_readings(chart))
        return is_active and not obstacle and _is_in_force(proposal.before, chart.knobs)

    def _choose(
        self, chart: Chart, findings: Sequence[Finding]
    ) -> tuple[Finding, Remedy, dict[str, Setting]] | None:
        occupied = self._occupied_slots(chart)
        readings = recent_readings(chart)
        for finding in _by_urgency(findings):
            for remedy in self._allowed(finding.remedies):
                if remedy.obstacle(chart.knobs, readings):
                    continue
                changes = remedy.tuned(remedy.change(chart.knobs), readings)
                is_known = changes.keys() <= chart.knobs.keys()
                if changes and is_known and not occupied & set(remedy.slots):
                    return finding, remedy, changes
        return None

    def _allowed(self, remedy_ids: Iterable[str]) -> Iterator[Remedy]:
        # A person who is asked decides about unsafe remedies, too.
        allowed = {"safe"} if self.apply == "safe" else {"safe", "unsafe"}
        for remedy_id in remedy_ids:
            remedy = self._remedies.get(remedy_id)
            if remedy is None or remedy_id in self._excluded or not remedy.in_flight:
                continue
            declared = "safe" if remedy_id in self.settings.safe_remedies else ""
            if allowed & {remedy.applicability, declared}:
                yield remedy

    def _occupied_slots(self, chart: Chart) -> set[Slot]:
        """The slots of treatments that were kept and are still in force."""
        slots: set[Slot] = set()
        for treatment in self.history:
            if treatment.state == "kept" and _is_in_force(treatment.changes, chart.knobs):
                slots.update(self._remedies[treatment.remedy].slots)
        return slots

    def _continue(self, treatment: Treatment, chart: Chart, findings: Sequence[Finding]) -> None:
        is_unanswered = chart.step - treatment.requested_step > self.settings.answer_steps
        if treatment.state == "proposed" and is_unanswered:
            self._close("forgotten", chart.step, "the run did not answer", exclude=True)
        elif treatment.state == "undoing" and is_unanswered:
            verdict = f"{treatment.verdict}; the run did not answer the request to undo it"
            self._close("forgotten", chart.step, verdict, exclude=True)
        elif treatment.state == "applied" and self._is_due(treatment, chart):
            self._assess(treatment, chart, findings)

    def _is_due(self, treatment: Treatment, chart: Chart) -> bool:
        applied = treatment.applied_step or 0
        waited, wait_steps = chart.step - applied + 1, self.settings.wait_steps
        targets = self._remedies[treatment.remedy].targets
        readings = max(len(readings_since(chart, target.metric, applied)) for target in targets)
        is_enough = readings >= self.settings.fewest_readings or waited >= 2 * wait_steps
        return waited >= wait_steps and is_enough

    def _assess(self, treatment: Treatment, chart: Chart, findings: Sequence[Finding]) -> None:
        active = {finding.code for finding in findings if finding.active}
        is_resolved = bool(treatment.finding) and treatment.finding not in active
        remedy = self._remedies[treatment.remedy]
        assessment = assess(chart, remedy, treatment.applied_step or 0, is_resolved=is_resolved)
        assessed = replace(
            treatment, comparisons=assessment.comparisons, verdict=assessment.verdict
        )
        self.current = assessed
        if assessment.keep:
            self._close("kept", chart.step, assessment.verdict)
        else:
            self.current = replace(assessed, state="undoing", requested_step=chart.step)
            self._request("undo", assessed)

    def _abandon(self, why: str, step: int) -> None:
        """Close the current treatment without an assessment; its remedy may be tried again."""
        while self.current is not None:
            self._close("forgotten", step, why)

    def _close(
        self,
        state: State,
        step: int,
        verdict: str | None = None,
        *,
        exclude: bool = False,
        note: bool = True,
    ) -> None:
        if self.current is None:
            return
        closed = replace(
            self.current,
            state=state,
            closed_step=step,
            verdict=self.current.verdict if verdict is None else verdict,
        )
        self.history.append(closed)
        self.current, self._competing = self._competing, None
        self._idle_until = step + self.settings.cool_down_steps
        if exclude:
            self._excluded.add(closed.remedy)
        if note and state != "refused":
            # The run itself has already written the refusal to the journal.
            self._note(closed.closing(step), closed)

    def _note(self, event: Event, treatment: Treatment) -> None:
        request_id = f"{treatment.id}/{event.kind.removeprefix('treatment-')}"
        self._outbox[request_id] = note_request(event, request_id)

    def _request(self, kind: Literal["apply", "undo"], treatment: Treatment) -> None:
        request_id = f"{treatment.id}/{kind}"
        changes = treatment.changes if kind == "apply" else treatment.before
        self._outbox[request_id] = Request(
            request_id, kind, treatment.id, treatment.remedy, dict(changes)
        )


def _by_urgency(findings: Iterable[Finding]) -> list[Finding]:
    """Active findings, the most severe and then the earliest first, without `info`.

    Findings that tie keep the engine's order, which puts causes before symptoms.
    """
    active = (finding for finding in findings if finding.active and finding.severity != "info")
    return sorted(
        active, key=lambda finding: (-SEVERITIES.index(finding.severity), finding.onset_step)
    )


def _is_in_force(changes: Mapping[str, Setting], knobs: Mapping[str, Setting]) -> bool:
    return all(knobs.get(name) == setting for name, setting in changes.items())

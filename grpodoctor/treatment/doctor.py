"""Decides which remedy a live run is given, waits, and keeps it or takes it back.

One treatment at a time:

    idle → proposed → applied → kept
                │        └────→ undoing → undone
                ├→ refused                          then a cool-down, then idle
                └→ forgotten (no answer; the run went back, restarted or ended)

The doctor reads no clock and no disk. What it knows it has from the chart, the findings and the
journal, and whoever drives it sends its requests. The journal alone is enough to go on: a doctor
that hears the lines of an earlier one continues its treatment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from grpodoctor.remedies.base import Remedy, Slot
from grpodoctor.rules.base import SEVERITIES, Finding
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.records import Event
from grpodoctor.treatment.assessment import BEFORE, compare, judge, readings_since
from grpodoctor.treatment.requests import Request, note_request
from grpodoctor.treatment.treatments import State, Treatment, from_event
from grpodoctor.vocabulary.knobs import Setting

Apply = Literal["none", "safe", "unsafe"]
"""Which remedies may be applied: none, the safe ones, or the unsafe ones as well."""

HISTORY = 200
"""Closed treatments remembered; older ones stand in the journal."""


class DoctorSettings(BaseModel):
    """How patient the doctor is, in steps of the run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    wait_steps: int = Field(12, ge=6, le=10_000)
    """Steps under a treatment before it is judged: the later half of them is compared."""
    fewest_readings: int = Field(6, ge=6, le=10_000)
    """Readings of a target that are waited for, at most for twice `wait_steps`."""
    answer_steps: int = Field(20, ge=1, le=10_000)
    """Steps within which the run must answer. An observer reads several steps at a time, and the
    run takes requests between two."""
    cool_down_steps: int = Field(12, ge=0, le=10_000)
    """Steps between the end of a treatment and the next: its effects must not be mistaken for
    those of the next one."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the treatment in progress is, for a screen."""

    treatment: Treatment
    waited: int
    """Steps under it so far."""
    patience: int
    """Steps until it is judged."""
    metric: str
    """The target that tells most."""
    before: float | None
    now: float | None


class Doctor:
    """Treats one run.

    Args:
        remedies: the remedies to choose from.
        apply: which of them may be applied; with `none` the doctor only listens.
        settings: how patient it is.
    """

    def __init__(
        self,
        remedies: Iterable[Remedy],
        apply: Apply = "none",
        settings: DoctorSettings | None = None,
    ) -> None:
        self._remedies = {remedy.id: remedy for remedy in remedies}
        self.apply = apply
        self.settings = settings or DoctorSettings()
        self.current: Treatment | None = None
        """The treatment in progress."""
        self.history: deque[Treatment] = deque(maxlen=HISTORY)
        """Closed treatments, oldest first."""
        self._barred: set[str] = set()
        """Remedies that did not help, were refused or were not answered in this run."""
        self._step = -1
        self._rest_until = -1
        self._count = 0
        self._stray: Treatment | None = None
        """Another observer's treatment, applied while the run still owes an answer to ours."""
        self._outbox: dict[str, Request] = {}
        """Requests not sent yet, by id; a note that is already in the journal is taken out."""

    def observe(
        self, chart: Chart, findings: Sequence[Finding], events: Iterable[Event] = ()
    ) -> list[Request]:
        """Take the state of the run after its latest step, and say what to ask of it.

        Args:
            chart: the run so far.
            findings: what the rules have found, active or not.
            events: journal lines since the last call, in order; at the first call all there are.

        Returns:
            Requests to send, in order.
        """
        self.hear(events)
        if self.apply == "none":
            self._outbox.clear()
            return []
        if chart.step < self._step:
            self._forget(f"the run went back to step {chart.step}", chart.step)
            self._rest_until = min(self._rest_until, chart.step + self.settings.cool_down_steps)
        self._step = chart.step
        if self.current is not None:
            self._go_on(self.current, chart, findings)
        elif chart.step >= self._rest_until and chart.steps_seen >= BEFORE:
            # Earlier there would be no level before the treatment to judge it by.
            self._begin(chart, findings)
        requests = list(self._outbox.values())
        self._outbox.clear()
        return requests

    def progress(self, chart: Chart) -> Progress | None:
        """How far the treatment in progress is; None if there is none."""
        treatment = self.current
        if treatment is None:
            return None
        target = self._remedies[treatment.remedy].target
        applied = treatment.applied_step
        since = [] if applied is None else readings_since(chart, target.metric, applied)
        found = None if applied is None else compare(chart, target, "target", applied)
        return Progress(
            treatment=treatment,
            waited=0 if applied is None else max(0, chart.step - applied + 1),
            patience=self.settings.wait_steps,
            metric=target.metric,
            before=found.before if found else None,
            now=since[-1] if since else None,
        )

    # What the run and other observers have written

    def hear(self, events: Iterable[Event]) -> None:
        """Take journal lines, old or new; what they say of a treatment counts as it stands."""
        for event in events:
            if event.kind in {"started", "resumed", "finished"}:
                self._hear_run(event)
            elif event.kind == "treatment-proposed":
                self._adopt(event)
            elif event.kind == "treatment-applied":
                self._hear_applied(event)
            elif event.kind == "treatment-refused":
                self._hear_refused(event)
            elif event.kind in {"treatment-kept", "treatment-undone", "treatment-forgotten"}:
                self._hear_closed(event)

    def _hear_run(self, event: Event) -> None:
        self._forget(f"the run {event.kind} at step {event.step}", event.step)
        self._step = self._rest_until = -1
        if event.kind == "started":
            self._barred.clear()

    def _adopt(self, event: Event) -> None:
        """Go on with the treatment of an earlier doctor, or of another one."""
        treatment = from_event(event)
        if treatment is None or treatment.remedy not in self._remedies:
            return
        if self.current is None and self._closed(treatment.id) is None:
            self._count += 1
            self.current = treatment

    def _hear_applied(self, event: Event) -> None:
        if event.body.get("request") == "undo":
            self._hear_undone(event)
            return
        heard = from_event(event)
        if heard is None or heard.remedy not in self._remedies:
            return
        applied = replace(heard, state="applied", applied_step=event.step)
        closed = self._closed(heard.id)
        if self._speaks_of_current(event):
            self._take_effect(applied)
        elif closed is not None:
            if closed.state == "forgotten":
                self._ask("undo", applied)
        elif self.current is None:
            self._count += 1
            self.current = applied
        elif self.current.state == "proposed" and self._stray is None:
            self._stray = applied
        else:
            self._turn_away(applied)

    def _hear_undone(self, event: Event) -> None:
        treatment_id = str(event.body.get("treatment_id"))
        self._outbox.pop(f"{treatment_id}/undo", None)
        closed = self._closed(treatment_id)
        if self._speaks_of_current(event):
            self._close("undone", event.step, bar=True)
        elif closed is not None and closed.state == "kept":
            # Somebody else asked for it, and is not to be fought.
            self._barred.add(closed.remedy)
            undone = replace(closed, state="undone", verdict="taken back at another's request")
            self.history[self.history.index(closed)] = undone
            self._note(undone.closing(event.step), undone)

    def _take_effect(self, applied: Treatment) -> None:
        if self.current is None or self.current.state != "proposed":
            return
        self.current = replace(
            self.current,
            state="applied",
            applied_step=applied.applied_step,
            before=applied.before,
        )
        if self._stray is not None:
            self._turn_away(self._stray)
            self._stray = None

    def _turn_away(self, stray: Treatment) -> None:
        """Take back what another observer had applied: the effects of two cannot be told apart."""
        step = stray.applied_step or 0
        why = "another treatment was in progress, and it is taken back"
        closed = replace(stray, state="forgotten", closed_step=step, verdict=why)
        self.history.append(closed)
        self._note(closed.closing(step), closed)
        self._ask("undo", closed)

    def _hear_refused(self, event: Event) -> None:
        treatment = self.current
        if treatment is None or not self._speaks_of_current(event):
            return
        reason = str(event.body.get("reason", "no reason given"))[:300]
        if treatment.state == "proposed":
            self._close("refused", event.step, f"the run refused it: {reason}", bar=True)
            self._rest_until = -1
        elif treatment.state == "undoing":
            verdict = f"{treatment.verdict}; the run refused to undo it: {reason}"
            self._close("forgotten", event.step, verdict, bar=True)

    def _hear_closed(self, event: Event) -> None:
        kind = event.kind.removeprefix("treatment-")
        self._outbox.pop(f"{event.body.get('treatment_id')}/{kind}", None)
        if not self._speaks_of_current(event):
            return
        states: dict[str, State] = {"kept": "kept", "undone": "undone", "forgotten": "forgotten"}
        verdict = str(event.body.get("verdict", ""))[:1000]
        self._close(states[kind], event.step, verdict, bar=kind == "undone", note=False)

    def _speaks_of_current(self, event: Event) -> bool:
        return self.current is not None and event.body.get("treatment_id") == self.current.id

    def _closed(self, treatment_id: str) -> Treatment | None:
        return next((each for each in self.history if each.id == treatment_id), None)

    # What the doctor does

    def _begin(self, chart: Chart, findings: Sequence[Finding]) -> None:
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
            asked_step=chart.step,
        )
        self.current = treatment
        self._note(treatment.proposal(finding), treatment)
        self._ask("apply", treatment)

    def _choose(
        self, chart: Chart, findings: Sequence[Finding]
    ) -> tuple[Finding, Remedy, dict[str, Setting]] | None:
        occupied = self._occupied(chart)
        for finding in _by_urgency(findings):
            for remedy in self._allowed(finding.remedies):
                changes = remedy.change(chart.knobs)
                known = changes.keys() <= chart.knobs.keys()
                if changes and known and not occupied & set(remedy.slots):
                    return finding, remedy, changes
        return None

    def _allowed(self, remedy_ids: Iterable[str]) -> Iterator[Remedy]:
        allowed = {"safe"} if self.apply == "safe" else {"safe", "unsafe"}
        for remedy_id in remedy_ids:
            remedy = self._remedies.get(remedy_id)
            if remedy is None or remedy_id in self._barred or not remedy.in_flight:
                continue
            if remedy.applicability in allowed:
                yield remedy

    def _occupied(self, chart: Chart) -> set[Slot]:
        """The slots of treatments that were kept and are still in force."""
        slots: set[Slot] = set()
        for each in self.history:
            if each.state == "kept" and _in_force(each.changes, chart.knobs):
                slots.update(self._remedies[each.remedy].slots)
        return slots

    def _go_on(self, treatment: Treatment, chart: Chart, findings: Sequence[Finding]) -> None:
        unanswered = chart.step - treatment.asked_step > self.settings.answer_steps
        if treatment.state == "proposed" and unanswered:
            self._close("forgotten", chart.step, "the run did not answer", bar=True)
        elif treatment.state == "undoing" and unanswered:
            verdict = f"{treatment.verdict}; the run did not answer the request to undo it"
            self._close("forgotten", chart.step, verdict, bar=True)
        elif treatment.state == "applied" and self._is_due(treatment, chart):
            self._judge(treatment, chart, findings)

    def _is_due(self, treatment: Treatment, chart: Chart) -> bool:
        applied = treatment.applied_step or 0
        waited, patience = chart.step - applied + 1, self.settings.wait_steps
        targets = self._remedies[treatment.remedy].targets
        read = max(len(readings_since(chart, each.metric, applied)) for each in targets)
        return waited >= patience and (
            read >= self.settings.fewest_readings or waited >= 2 * patience
        )

    def _judge(self, treatment: Treatment, chart: Chart, findings: Sequence[Finding]) -> None:
        active = {finding.code for finding in findings if finding.active}
        resolved = bool(treatment.finding) and treatment.finding not in active
        remedy = self._remedies[treatment.remedy]
        judgement = judge(chart, remedy, treatment.applied_step or 0, resolved=resolved)
        judged = replace(treatment, comparisons=judgement.comparisons, verdict=judgement.verdict)
        self.current = judged
        if judgement.keep:
            self._close("kept", chart.step, judgement.verdict)
        else:
            self.current = replace(judged, state="undoing", asked_step=chart.step)
            self._ask("undo", judged)

    def _forget(self, why: str, step: int) -> None:
        """What is in progress ends without a verdict; its remedy may be tried again."""
        while self.current is not None:
            self._close("forgotten", step, why)

    def _close(
        self,
        state: State,
        step: int,
        verdict: str | None = None,
        *,
        bar: bool = False,
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
        self.current, self._stray = self._stray, None
        self._rest_until = step + self.settings.cool_down_steps
        if bar:
            self._barred.add(closed.remedy)
        if note and state != "refused":
            # The refusal itself is in the journal already, in the run's own words.
            self._note(closed.closing(step), closed)

    def _note(self, event: Event, treatment: Treatment) -> None:
        request_id = f"{treatment.id}/{event.kind.removeprefix('treatment-')}"
        self._outbox[request_id] = note_request(event, request_id)

    def _ask(self, kind: Literal["apply", "undo"], treatment: Treatment) -> None:
        request_id = f"{treatment.id}/{kind}"
        changes = treatment.changes if kind == "apply" else treatment.before
        self._outbox[request_id] = Request(
            request_id, kind, treatment.id, treatment.remedy, dict(changes)
        )


def _by_urgency(findings: Iterable[Finding]) -> list[Finding]:
    """Active findings, the gravest and then the earliest first; `info` asks for no treatment.

    Between equals the order is the engine's, which puts causes before symptoms.
    """
    active = (each for each in findings if each.active and each.severity != "info")
    return sorted(active, key=lambda each: (-SEVERITIES.index(each.severity), each.onset_step))


def _in_force(changes: Mapping[str, Setting], knobs: Mapping[str, Setting]) -> bool:
    return all(knobs.get(name) == setting for name, setting in changes.items())

"""The state of a treatment, read from the journal of the run.

The journal alone holds the whole state: a doctor that reads the journal of an earlier doctor
continues its treatment. Other observers may treat the same run; what they did is in the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Literal

from grpodoctor.remedies.base import Remedy
from grpodoctor.rules.base import Finding
from grpodoctor.runs.records import Event
from grpodoctor.treatment.doctor_settings import DoctorSettings
from grpodoctor.treatment.requests import Request, note_request
from grpodoctor.treatment.stage_plan import stage_from_event
from grpodoctor.treatment.treatments import State, Treatment, treatment_from_event
from grpodoctor.vocabulary.knobs import Setting

REQUESTS: Mapping[State, str] = {"undoing": "undo", "keeping": "keep"}
"""The request whose answer a state waits for."""

STOP_ADVICE = "stop-advice"
"""Id of the request that writes the advice to stop to the journal."""

HISTORY = 200
"""Closed treatments kept in memory; older ones remain in the journal."""


class TreatmentJournal:
    """Follows the treatments of a run through its journal.

    Args:
        remedies: the remedies that are known; treatments with others are ignored.
        settings: waiting times and limits.
    """

    def __init__(self, remedies: Iterable[Remedy], settings: DoctorSettings) -> None:
        self._remedies = {remedy.id: remedy for remedy in remedies}
        self.settings = settings
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
        self._sent_stages: set[tuple[str, int]] = set()
        """Stages whose requests were sent, by treatment and number."""
        self._abandoned: list[Treatment] = []
        """Treatments that were abandoned and may still be in force."""
        self.is_stopped = False
        """Whether the doctor has advised to stop the run."""

    def read_events(self, events: Iterable[Event]) -> None:
        """Take journal lines, old or new, and update the treatments that they concern."""
        handlers: Mapping[str, Callable[[Event], None]] = {
            "started": self._on_run_event,
            "resumed": self._on_run_event,
            "finished": self._on_run_event,
            "treatment-proposed": self._on_proposed,
            "treatment-scheduled": self._on_scheduled,
            "treatment-applied": self._on_applied,
            "treatment-refused": self._on_refused,
            "treatment-kept": self._on_closed,
            "treatment-undone": self._on_closed,
            "treatment-forgotten": self._on_closed,
            "treatment-stopped": self._on_stopped,
        }
        for event in events:
            if handler := handlers.get(event.kind):
                handler(event)

    def _on_run_event(self, event: Event) -> None:
        self._abandon(f"the run {event.kind} at step {event.step}", event.step)
        self.proposal, self.is_stopped = None, False
        self._step = self._idle_until = -1
        if event.kind == "started":
            self._excluded.clear()
            self.history.clear()

    def _on_stopped(self, _: Event) -> None:
        self.is_stopped = True
        self._outbox.pop(STOP_ADVICE, None)

    def _on_proposed(self, event: Event) -> None:
        """Continue the treatment of an earlier doctor, or of another observer."""
        treatment = treatment_from_event(event)
        if treatment is None or treatment.remedy not in self._remedies:
            return
        if self.current is None and self._closed(treatment.id) is None:
            self._count += 1
            self.current = treatment

    def _on_scheduled(self, event: Event) -> None:
        """The first stage of a number in the journal counts, even if another observer drew it."""
        stage, treatment = stage_from_event(event), self.current
        if stage is None or treatment is None or not self._concerns_current(event):
            return
        number, content = stage
        if treatment.state == "applied" and number == len(treatment.stages) + 1:
            stages = (*treatment.stages, content)
            self.current = replace(treatment, stages=stages, awaits_stage=False)

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
        if self.current is not None and self.current.state == "keeping":
            self._close("kept", applied.applied_step or 0)
            return
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
        elif treatment.state in ("undoing", "keeping") and event.body.get("request_id") == (
            f"{treatment.id}/{REQUESTS[treatment.state]}"
        ):
            verb = "undo" if treatment.state == "undoing" else "keep"
            verdict = f"{treatment.verdict}; the run refused to {verb} it: {reason}"
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

    def _abandon(self, why: str, step: int) -> None:
        """Close the current treatment without an assessment; its remedy may be tried again."""
        while self.current is not None:
            if self.current.applied_step is not None:
                self._abandoned.append(self.current)
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

    def _request(
        self, kind: Literal["apply", "undo"], treatment: Treatment, name: str = ""
    ) -> None:
        request_id = f"{treatment.id}/{name or kind}"
        changes = treatment.changes if kind == "apply" else treatment.before
        self._outbox[request_id] = Request(
            request_id, kind, treatment.id, treatment.remedy, dict(changes)
        )


def is_in_force(changes: Mapping[str, Setting], knobs: Mapping[str, Setting]) -> bool:
    """Whether all changed knobs have their new settings."""
    return all(knobs.get(name) == setting for name, setting in changes.items())

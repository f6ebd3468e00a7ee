"""Chooses a remedy for a live run, waits, and keeps it or undoes it.

One treatment at a time:

    idle → proposed → applied → keeping → kept
                │        └────→ undoing → undone
                ├→ refused                          then a cool-down, then idle
                └→ forgotten (no answer; the run rewound, restarted or ended)

While it is applied, the treatment is switched on and off in stages of blocks whose order is drawn
at random (`switchback`), and the readings with and without it decide (`assessment`). After the last
treatment that the run may get, or when no remedy is left for a critical finding, the doctor advises
to stop the run and does nothing more.

With `ask`, a proposal waits for a person's approval before it is sent. It does not time out; it is
withdrawn when its finding resolves, when its knobs change, or when a cause of its finding is found
that has a remedy.

The doctor reads no clock and no disk. It receives the chart, the findings and the journal, and its
caller sends its requests. The journal alone holds the whole state: a doctor that reads the journal
of an earlier doctor continues its treatment.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from grpodoctor.errors import ConfigError
from grpodoctor.remedies.base import Remedy, Slot
from grpodoctor.remedies.recent_readings import recent_readings
from grpodoctor.rules.base import Finding
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.records import Event
from grpodoctor.support.safe_text import printable
from grpodoctor.treatment.assessment import assess, levels
from grpodoctor.treatment.doctor_settings import DoctorSettings
from grpodoctor.treatment.requests import Request, note_request
from grpodoctor.treatment.stage_plan import (
    block_steps_of,
    looks_of,
    scheduled,
    stage_requests,
)
from grpodoctor.treatment.stop_advice import stop_advice
from grpodoctor.treatment.switchback import draw_stage
from grpodoctor.treatment.treatment_journal import (
    REQUESTS,
    STOP_ADVICE,
    TreatmentJournal,
    is_in_force,
)
from grpodoctor.treatment.treatments import Treatment
from grpodoctor.vocabulary.knobs import Setting

Apply = Literal["none", "safe", "unsafe"]
"""Remedies that may be applied: none, the safe ones, or the unsafe ones as well."""

TreatmentMode = Apply | Literal["ask"]
"""The same, or with `ask` those that a person approves one by one."""

FEWEST_STEPS = 6
"""Steps before the first treatment: a rule needs some, and the spacing of the readings shows."""


@dataclass(frozen=True, slots=True)
class TreatmentProgress:
    """State of the treatment in progress, for a screen."""

    treatment: Treatment
    waited: int
    """Steps since it was applied."""
    patience: int
    """Steps from then to the next assessment."""
    metric: str
    """The first target."""
    untreated: float | None
    """Its median with the treatment off, in the stages so far."""
    treated: float | None


class Doctor(TreatmentJournal):
    """Treats one run.

    Args:
        remedies: the remedies to choose from.
        apply: which of them may be applied; with `none` the doctor only reads the journal.
        settings: waiting times and limits.
        source: source of the drawn orders; by default that of the operating system.
    """

    def __init__(
        self,
        remedies: Iterable[Remedy],
        apply: TreatmentMode = "none",
        settings: DoctorSettings | None = None,
        source: random.Random | None = None,
    ) -> None:
        super().__init__(remedies, settings or DoctorSettings())
        self.apply = apply
        self._causes: Mapping[str, Finding] = {}
        self._source = source or random.SystemRandom()

    def observe(
        self,
        chart: Chart,
        findings: Sequence[Finding],
        events: Iterable[Event] = (),
        causes: Mapping[str, Finding] | None = None,
    ) -> list[Request]:
        """Take the state of the run after its latest step, and return the requests to send.

        Args:
            chart: the run so far.
            findings: the findings of the rules, active or not, in the order in which they are
                treated: each cause before its symptoms.
            events: journal lines since the last call, in order; at the first call all of them.
            causes: the active cause of a finding, by the code of the finding.

        Returns:
            Requests to send, in order.
        """
        self.read_events(events)
        recent = set(self._seen_since_kept((causes or {}).values()))
        self._causes = {code: each for code, each in (causes or {}).items() if each in recent}
        if self.apply == "none":
            self._outbox.clear()
            return []
        if chart.step < self._step:
            self._abandon(f"the run rewound to step {chart.step}", chart.step)
            self._idle_until = min(self._idle_until, chart.step + self.settings.cool_down_steps)
        self._step = chart.step
        self._revert_abandoned(chart)
        if self.current is not None:
            self.proposal = None
            self._continue(self.current, chart)
        elif (
            chart.step >= self._idle_until
            and chart.steps_seen >= FEWEST_STEPS
            and not self.is_stopped
        ):
            self._propose(chart, self._seen_since_kept(findings))
        return self._take_requests()

    def _seen_since_kept(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings without those that a treatment that was kept may have cured.

        A finding resolves some quiet steps after its last sighting.
        """
        kept = [each.closed_step or 0 for each in self.history if each.state == "kept"]
        return [each for each in findings if each.last_step > max(kept, default=-1)]

    def _revert_abandoned(self, chart: Chart) -> None:
        """Undo abandoned treatments that are in force: their effect was not assessed."""
        for treatment in self._abandoned:
            if is_in_force(treatment.changes, chart.knobs):
                self._request("undo", treatment)
        self._abandoned.clear()

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
        applied = chart.step + 1 if treatment.applied_step is None else treatment.applied_step
        end = treatment.stages[-1].end if treatment.stages else applied
        untreated, treated = levels(chart, target.metric, treatment.stages)
        return TreatmentProgress(
            treatment=treatment,
            waited=max(0, chart.step - applied + 1),
            patience=max(0, end - applied),
            metric=target.metric,
            untreated=untreated,
            treated=treated,
        )

    def _propose(self, chart: Chart, findings: Sequence[Finding]) -> None:
        if self.proposal is not None and self._still_fits(self.proposal, chart, findings):
            cause = self._causes.get(self.proposal.finding)
            if cause is None or self._choose(chart, [cause]) is None:
                reason = self._reason(self.proposal.finding)
                self.proposal = replace(self.proposal, reason=reason)
                return
        self.proposal = None
        is_limit = self._tried >= self.settings.most_treatments
        choice = None if is_limit else self._choose(chart, findings)
        if choice is None:
            self._advise_to_stop(chart, findings, is_limit=is_limit)
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
            reason=self._reason(finding.code),
        )
        if self.apply == "ask":
            self.proposal, self._proposed_for = treatment, finding
        else:
            self._start(treatment, finding)

    def _reason(self, code: str) -> str:
        """Why a symptom is treated: its cause came first and has no remedy that can be applied."""
        cause = self._causes.get(code)
        if cause is None:
            return ""
        return (
            f"{cause.code} {cause.name} explains {code}, but no remedy of it can be applied to the "
            "running training now; this change treats the symptom"
        )

    @property
    def _tried(self) -> int:
        """Treatments that were in force, or were tried on branches."""
        return sum(
            each.applied_step is not None or each.state in ("kept", "undone")
            for each in self.history
        )

    def _advise_to_stop(self, chart: Chart, findings: Sequence[Finding], *, is_limit: bool) -> None:
        advice = stop_advice(chart, findings, self.history, is_limit=is_limit)
        if advice is not None:
            self.is_stopped = True
            self._outbox[STOP_ADVICE] = note_request(advice, STOP_ADVICE)

    def _start(self, treatment: Treatment, finding: Finding) -> None:
        self.current, self.proposal = treatment, None
        self._note(treatment.proposal(finding), treatment)
        self._request("apply", treatment)

    def _still_fits(self, proposal: Treatment, chart: Chart, findings: Sequence[Finding]) -> bool:
        """Whether a proposal's finding is active, and its knobs and its obstacle are as before."""
        is_active = any(each.active and each.code == proposal.finding for each in findings)
        obstacle = self._remedies[proposal.remedy].obstacle(chart.knobs, recent_readings(chart))
        return is_active and not obstacle and is_in_force(proposal.before, chart.knobs)

    def _choose(
        self, chart: Chart, findings: Sequence[Finding]
    ) -> tuple[Finding, Remedy, dict[str, Setting]] | None:
        occupied = self._occupied_slots(chart)
        readings = recent_readings(chart)
        for finding in filter(_is_treatable, findings):
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
            if treatment.state == "kept" and is_in_force(treatment.changes, chart.knobs):
                slots.update(self._remedies[treatment.remedy].slots)
        return slots

    def _continue(self, treatment: Treatment, chart: Chart) -> None:
        is_unanswered = chart.step - treatment.requested_step > self.settings.answer_steps
        if treatment.state == "proposed" and is_unanswered:
            self._close("forgotten", chart.step, "the run did not answer", exclude=True)
        elif treatment.state in REQUESTS and is_unanswered:
            verb = REQUESTS[treatment.state]
            verdict = f"{treatment.verdict}; the run did not answer the request to {verb} it"
            self._close("forgotten", chart.step, verdict, exclude=True)
        elif treatment.state == "applied":
            self._conduct(treatment, chart, is_unanswered=is_unanswered)

    def _conduct(self, treatment: Treatment, chart: Chart, *, is_unanswered: bool) -> None:
        """Draw the first stage, send the requests of a stage, or assess it when it is complete."""
        number = len(treatment.stages)
        if not number or treatment.awaits_stage:
            if treatment.awaits_stage and is_unanswered:
                self._undo(
                    treatment, chart, "the run did not write the drawn blocks to its journal"
                )
            elif not treatment.awaits_stage:
                self._draw(treatment, chart)
            return
        stage = treatment.stages[-1]
        if (treatment.id, number) not in self._sent_stages:
            self._sent_stages.add((treatment.id, number))
            is_on = is_in_force(treatment.changes, chart.knobs)
            for request in stage_requests(treatment, stage, chart.step, is_on=is_on):
                self._outbox[request.id] = request
        if chart.step >= stage.end - 1:
            self._assess(treatment, chart)

    def _draw(self, treatment: Treatment, chart: Chart) -> None:
        remedy = self._remedies[treatment.remedy]
        block_steps = (
            treatment.stages[0].block_steps
            if treatment.stages
            else block_steps_of(chart, remedy, self.settings.block_steps)
        )
        if block_steps is None:
            names = " or ".join(target.metric for target in remedy.targets)
            self._undo(treatment, chart, f"too few readings of {names} to assess it")
            return
        # The journal line needs as long as the first request did, and so do its switches.
        lag = max(1, (treatment.applied_step or 0) - treatment.proposed_step)
        first_step = chart.step + 2 * min(lag, self.settings.answer_steps) + 1
        stage = draw_stage(first_step, block_steps, self._source)
        event = scheduled(treatment, stage, chart.step)
        request_id = f"{treatment.id}/scheduled-{len(treatment.stages) + 1}"
        self._outbox[request_id] = note_request(event, request_id)
        self.current = replace(treatment, awaits_stage=True, requested_step=chart.step)

    def _assess(self, treatment: Treatment, chart: Chart) -> None:
        remedy, stages = self._remedies[treatment.remedy], treatment.stages
        assessment = assess(chart, remedy, stages, looks_of(stages[0].block_steps))
        assessed = replace(
            treatment, comparisons=assessment.comparisons, verdict=assessment.verdict
        )
        if assessment.decision == "continue":
            self._draw(assessed, chart)
        elif assessment.decision == "undo":
            self._undo(assessed, chart, assessment.verdict)
        else:
            self.current = replace(assessed, state="keeping", requested_step=chart.step)
            self._request("apply", assessed, "keep")

    def _undo(self, treatment: Treatment, chart: Chart, verdict: str) -> None:
        self.current = replace(
            treatment, state="undoing", requested_step=chart.step, verdict=verdict
        )
        self._request("undo", treatment)


def _is_treatable(finding: Finding) -> bool:
    return finding.active and finding.severity != "info"

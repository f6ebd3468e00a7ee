"""What agents may change: remedies of a live run, through its mailbox."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from grpodoctor.cli.mcp.run_tools import RunTools
from grpodoctor.errors import ConfigError
from grpodoctor.monitor.bounded_json import UNTRUSTED, bounded
from grpodoctor.monitor.session import Session
from grpodoctor.remedies.base import Remedy
from grpodoctor.remedies.catalogue import remedy_of
from grpodoctor.remedies.recent_readings import recent_readings
from grpodoctor.rules.base import Finding
from grpodoctor.runs.reading.opening import is_native
from grpodoctor.support.safe_text import printable
from grpodoctor.treatment.doctor import FEWEST_STEPS, Apply
from grpodoctor.treatment.mailbox import Mailbox
from grpodoctor.treatment.requests import Request


class TreatmentTools:
    """Proposes, applies and undoes remedies.

    Args:
        runs: the runs that may be treated.
        apply: which remedies may be applied.
    """

    def __init__(self, runs: RunTools, apply: Apply) -> None:
        self._runs, self._apply = runs, apply

    def propose(self, run: str) -> dict[str, Any]:
        """The remedies of the active findings, each with the reason if it cannot be applied now."""
        session = self._session(run)
        pairs = _called_for(session)
        return {
            "untrusted": UNTRUSTED,
            "step": session.examination.engine.chart.step,
            "remedies": [
                {
                    "remedy": remedy.id,
                    "title": remedy.title,
                    "finding": finding.code,
                    "applicability": remedy.applicability,
                    "change": bounded(_change(session, remedy)),
                    "refused": self._refusal(session, remedy),
                }
                for finding, remedy in pairs
            ],
        }

    def apply(self, run: str, remedy_id: str) -> dict[str, Any]:
        """Request a remedy from the run.

        Raises:
            ConfigError: if it cannot be applied now.
            RunError: if the request cannot be sent.
        """
        session, remedy = self._session(run), remedy_of(remedy_id)
        if reason := self._refusal(session, remedy):
            raise ConfigError(f"{remedy.id} is not applied: {reason}", remedy="see propose")
        doctor, engine = session.doctor, session.examination.engine
        doctor.apply = self._apply
        findings = [
            replace(each, remedies=(remedy.id,))
            for each in engine.diagnosis().findings
            if remedy.id in each.remedies
        ]
        requests = doctor.observe(engine.chart, findings)
        if not requests or doctor.current is None:
            reason = "another treatment of the same settings is in force, or has just ended"
            raise ConfigError(f"{remedy.id} is not applied: {reason}", remedy="see propose")
        mailbox = Mailbox(session.run_dir)
        for request in requests:
            mailbox.send(request)
        return {
            "requested": doctor.current.id,
            "change": dict(doctor.current.changes),
            "next": "The run answers between two steps: see treatments in check. "
            "grpodoctor watch --apply judges the effect; without it, undo it if it does not help.",
        }

    def undo(self, run: str, treatment_id: str) -> dict[str, Any]:
        """Request that a treatment in force is undone.

        Raises:
            ConfigError: if no such treatment is in force.
            RunError: if the request cannot be sent.
        """
        session = self._session(run)
        known = [session.doctor.current, *session.doctor.history]
        treatment = next((each for each in known if each and each.id == treatment_id), None)
        if treatment is None or treatment.state not in ("applied", "kept"):
            raise ConfigError("no such treatment is in force", where=printable(treatment_id))
        before = dict(treatment.before)
        name = f"{treatment.id}/undo"
        request = Request(name, "undo", treatment.id, treatment.remedy, before)
        Mailbox(session.run_dir).send(request)
        return {"requested": name, "change": before}

    def _session(self, run: str) -> Session:
        """The run up to now.

        Raises:
            ConfigError: if it accepts no requests.
        """
        path = self._runs.path_of(run)
        if not is_native(path) or not path.is_dir():
            raise ConfigError(
                "this run has only a log and accepts no requests",
                where=printable(run),
                remedy="change its settings by hand, or train with grpodoctor.attach",
            )
        session = Session(path, project=self._runs.project)
        session.read_all()
        return session

    def _refusal(self, session: Session, remedy: Remedy) -> str:
        """Why a remedy cannot be applied now; empty if nothing is known against it."""
        chart, treatment = session.examination.engine.chart, session.doctor.current
        safe = {*self._runs.project.extend_safe_fixes}
        is_safe = remedy.applicability == "safe" or remedy.id in safe
        if session.examination.finished:
            return "the run has finished"
        if remedy.id not in {each.id for _, each in _called_for(session)}:
            return "no active finding calls for it"
        if not remedy.in_flight or remedy.applicability == "suggest":
            return "it requires a restart or a person"
        if not is_safe and self._apply != "unsafe":
            return "it is unsafe: it changes the objective"
        if treatment is not None:
            return f"the treatment {treatment.id} is in progress"
        if obstacle := remedy.obstacle(chart.knobs, recent_readings(chart)):
            return obstacle
        if not _change(session, remedy):
            return "it is in force already, or the run does not report its settings"
        return "" if chart.steps_seen >= FEWEST_STEPS else f"the run needs {FEWEST_STEPS} steps"


def _called_for(session: Session) -> list[tuple[Finding, Remedy]]:
    """The remedies of the active findings, each with the first finding that calls for it."""
    pairs: dict[str, tuple[Finding, Remedy]] = {}
    for finding in session.examination.report().diagnosis.counted:
        for remedy in map(remedy_of, finding.remedies):
            pairs.setdefault(remedy.id, (finding, remedy))
    return list(pairs.values())


def _change(session: Session, remedy: Remedy) -> dict[str, Any]:
    chart = session.examination.engine.chart
    return remedy.tuned(remedy.change(chart.knobs), recent_readings(chart))

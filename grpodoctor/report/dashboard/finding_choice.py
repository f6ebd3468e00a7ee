"""The finding that an address names."""

from __future__ import annotations

from collections.abc import Sequence

from grpodoctor.monitor.diagnosis.diagnose import Diagnosis
from grpodoctor.monitor.diagnosis.problems import Problem, Symptom
from grpodoctor.report.run.finding_view import finding_key
from grpodoctor.rules.base import Finding


def chosen_finding(findings: Sequence[Finding], key: str) -> Finding | None:
    """The finding that an address names; the first one if it names none.

    An address of a live run may be older than a change of the onset, so the code alone counts if
    no onset matches. None if the run has no finding with this code.
    """
    if not key:
        return findings[0] if findings else None
    code = key.split("-", maxsplit=1)[0]
    exact = [each for each in findings if finding_key(each) == key]
    return next(iter([*exact, *(each for each in findings if each.code == code)]), None)


def parts_of(diagnosis: Diagnosis, finding: Finding) -> tuple[Problem, Symptom | None]:
    """The problem that a finding belongs to, and the symptom if it is not the cause."""
    for problem in diagnosis.problems:
        if problem.cause == finding:
            return problem, None
        for symptom in problem.symptoms:
            if symptom.finding == finding:
                return problem, symptom
    raise LookupError(f"{finding.code} is not part of the diagnosis")

"""The treatments of a run, put together from the lines of its journal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from grpodoctor.monitor.report import TreatmentEntry

_MOST_METRICS = 20
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class WindowComparison:
    """One metric with the treatment off and on, as the journal has it."""

    metric: str
    role: str
    """`target` or `guard`."""
    direction: str
    untreated: float
    treated: float
    p: float
    moved: bool


@dataclass(frozen=True, slots=True)
class PastTreatment:
    """One treatment from its proposal to its end."""

    id: str
    remedy: str
    finding: str = ""
    """Code of the finding that it treats."""
    state: str = "proposed"
    """The kind of its latest journal line."""
    proposed_step: int | None = None
    applied_step: int | None = None
    closed_step: int | None = None
    before: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    verdict: str = ""
    """Why it was kept, undone or refused."""
    comparisons: tuple[WindowComparison, ...] = ()


def past_treatments(journal: Iterable[TreatmentEntry]) -> tuple[PastTreatment, ...]:
    """The treatments of a journal, the latest first."""
    treatments: dict[str, PastTreatment] = {}
    for entry in journal:
        name = str(entry.body.get("treatment_id") or f"{entry.remedy}@{entry.step}")
        before = treatments.get(name, PastTreatment(name, entry.remedy))
        treatments[name] = _after(before, entry)
    return tuple(reversed(treatments.values()))


def _after(treatment: PastTreatment, entry: TreatmentEntry) -> PastTreatment:
    body = entry.body
    treatment = replace(
        treatment,
        finding=str(body.get("finding") or treatment.finding),
        before=_mapping(body.get("before")) or treatment.before,
        changes=_mapping(body.get("changes")) or treatment.changes,
        verdict=str(body.get("verdict") or body.get("reason") or treatment.verdict),
        comparisons=_comparisons(body.get("metrics")) or treatment.comparisons,
    )
    if entry.kind in ("scheduled", "switched"):
        return treatment
    if entry.kind == "proposed":
        return replace(treatment, proposed_step=entry.step)
    if entry.kind == "applied" and body.get("request") != "undo":
        first = entry.step if treatment.applied_step is None else treatment.applied_step
        return replace(treatment, state="applied", applied_step=first)
    return replace(treatment, state=_state(entry), closed_step=entry.step)


def _state(entry: TreatmentEntry) -> str:
    """A run that carries out the request to undo reports it as applied."""
    return "undone" if entry.kind == "applied" else entry.kind


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _comparisons(value: object) -> tuple[WindowComparison, ...]:
    """The comparisons of a journal line, which is untrusted: others are left out."""
    rows = value[:_MOST_METRICS] if isinstance(value, list) else []
    parsed = (_comparison(row) for row in rows if isinstance(row, Mapping))
    return tuple(each for each in parsed if each is not None)


def _comparison(row: Mapping[str, Any]) -> WindowComparison | None:
    numbers = [row.get(name) for name in ("untreated", "treated", "p")]
    if not all(isinstance(number, int | float) for number in numbers):
        return None
    untreated, treated, p = (float(number or 0.0) for number in numbers)
    if not all(map(math.isfinite, (untreated, treated, p))):
        return None
    metric, role, direction = (
        str(row.get(name, ""))[:_LONGEST_NAME] for name in ("metric", "role", "direction")
    )
    moved = row.get("moved") is True
    return WindowComparison(metric, role, direction, untreated, treated, p, moved)

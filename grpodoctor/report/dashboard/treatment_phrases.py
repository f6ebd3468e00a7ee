"""Wording of the page Treatment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpodoctor.monitor.dashboard.treatment_history import PastTreatment
from grpodoctor.monitor.report import TreatmentEntry
from grpodoctor.monitor.vitals import format_number, format_reading
from grpodoctor.report.view import Column, Table, Tone, code
from grpodoctor.support.safe_text import plain

STATE_TONES: Mapping[str, Tone] = {
    "kept": "good",
    "applied": "info",
    "proposed": "info",
    "undone": "warning",
    "refused": "warning",
    "forgotten": "warning",
}
"""Colors of the states of a treatment."""

_LONGEST_TEXT = 400
_LONGEST_NAME = 100


def steps_phrase(treatment: PastTreatment) -> str:
    """When a treatment was proposed, applied and closed."""
    parts = [
        ("proposed at step", treatment.proposed_step),
        ("applied from step", treatment.applied_step),
        (f"{plain(treatment.state, limit=40)} at step", treatment.closed_step),
    ]
    return ", ".join(f"{text} {step}" for text, step in parts if step is not None)


def settings_table(before: Mapping[str, Any], changes: Mapping[str, Any]) -> Table:
    """The changed settings before and after."""
    columns = (Column("setting"), Column("before"), Column("after"))
    rows = tuple(
        (
            code(plain(str(name), limit=_LONGEST_NAME)),
            plain(str(before.get(name, "-")), limit=_LONGEST_NAME),
            plain(str(setting), limit=_LONGEST_NAME),
        )
        for name, setting in changes.items()
    )
    return Table(columns, rows)


def window_table(treatment: PastTreatment) -> Table:
    """The judged metrics with the treatment off and on."""
    columns = (
        Column("metric"),
        Column("role"),
        Column("off", numeric=True),
        Column("on", numeric=True),
        Column("p", numeric=True),
        Column("moved"),
    )
    rows = tuple(
        (
            code(plain(each.metric, limit=_LONGEST_NAME)),
            f"{plain(each.role)} ({plain(each.direction)})",
            format_reading(each.metric, each.untreated),
            format_reading(each.metric, each.treated),
            format_number(each.p),
            "yes" if each.moved else "no",
        )
        for each in treatment.comparisons
    )
    return Table(columns, rows)


def journal_columns(journal: Sequence[TreatmentEntry]) -> dict[str, list[Any]]:
    """The journal as columns, the latest line first."""
    entries = list(reversed(journal))
    return {
        "Step": [entry.step for entry in entries],
        "Remedy": [plain(entry.remedy, limit=_LONGEST_NAME) for entry in entries],
        "Action": [plain(entry.kind, limit=_LONGEST_NAME) for entry in entries],
        "Change and reason": [plain(entry.detail, limit=_LONGEST_TEXT) for entry in entries],
    }

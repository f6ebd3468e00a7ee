"""The vital signs of a run: one paragraph in a brief report, a table in a full one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from grpodoctor.monitor.level_change import USUAL_BASIS
from grpodoctor.monitor.vitals import Vital, format_reading, in_tokens
from grpodoctor.report.run.phrases import TREND_ARROWS
from grpodoctor.report.view import Block, Column, Inline, Paragraph, Section, Span, Table, code

_DIGITS = 3
"""As in verdicts and summaries, so that the same level is the same number."""


def brief_vitals(vitals: Sequence[Vital], most: int) -> tuple[Block, ...]:
    """The first vital signs that are known, as one sentence; its heading defines the numbers.

    Args:
        vitals: the vital signs, most important first.
        most: number of vital signs to show.
    """
    known = [vital for vital in vitals if not vital.why_not][:most]
    if not known:
        return ()
    usual = _usual_basis(known)
    heading = f"Vitals ({usual}):" if usual else "Vitals (only reading):"
    changes = "; ".join(f"{vital.label} {_change(vital, usual)}" for vital in known)
    return (Paragraph((Span(heading, "strong"), changes)),)


def _usual_basis(vitals: Sequence[Vital]) -> str:
    """What most levels are; empty if no vital sign has two readings."""
    bases = Counter(vital.level_change.basis for vital in vitals if vital.level_change)
    return max(bases, key=lambda basis: (bases[basis], basis == USUAL_BASIS), default="")


def _change(vital: Vital, usual: str) -> str:
    level_change, unit = vital.level_change, " tokens" if in_tokens(vital.metric) else ""
    if level_change is None:
        reading = f"{format_reading(vital.metric, vital.now, _DIGITS)}{unit}"
        return f"{reading} (only reading)" if usual else reading
    both = (level_change.start, level_change.now)
    levels = " → ".join(format_reading(vital.metric, level, _DIGITS) for level in both)
    return f"{levels}{unit}{_difference(level_change.basis, usual)}"


def _difference(basis: str, usual: str) -> str:
    """How a basis differs from that in the heading, in parentheses; empty if it does not."""
    if basis == usual:
        return ""
    kind, _, readings = basis.partition(" of ")
    usual_kind, _, usual_readings = usual.partition(" of ")
    if readings == usual_readings:
        return f" ({kind})"
    return f" ({(readings if kind == usual_kind else basis).removesuffix(' readings')})"


def full_vitals(vitals: Sequence[Vital]) -> Section:
    """Every vital sign with its first and its latest level.

    The title names the kind of most levels; a further column has the exceptions.
    """
    usual = _usual_basis(vitals)
    rows = [(_label(vital), code(vital.metric), *_cells(vital, usual)) for vital in vitals]
    columns = (
        Column(""),
        Column("metric"),
        Column("start", numeric=True),
        Column("now", numeric=True),
        Column(""),
        Column(""),
    )
    has_exceptions = any(row[-1] for row in rows)
    shown = len(columns) if has_exceptions else len(columns) - 1
    table = Table(columns[:shown], tuple(row[:shown] for row in rows))
    return Section(f"Vitals ({usual})" if usual else "Vitals", (table,))


def _label(vital: Vital) -> str:
    return f"{vital.label} (tokens)" if in_tokens(vital.metric) else vital.label


def _cells(vital: Vital, usual: str) -> tuple[Inline, Inline, Inline, Inline]:
    if vital.why_not:
        return "", "n/a", "", Span(vital.why_not, "faint")
    level_change = vital.level_change
    if level_change is None:
        return "", format_reading(vital.metric, vital.now), "", Span("only reading", "faint")
    start, now = (
        format_reading(vital.metric, each) for each in (level_change.start, level_change.now)
    )
    # The trend compares the latest readings with the baseline, the numbers may be other levels.
    rises = level_change.now > level_change.start
    contradicts = (
        vital.trend == ("down" if rises else "up") and level_change.now != level_change.start
    )
    arrow = "" if contradicts else TREND_ARROWS[vital.trend]
    exception = _difference(level_change.basis, usual).strip(" ()")
    return start, now, arrow, Span(exception, "faint") if exception else ""

"""The table of runs as columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from grpodoctor.monitor.dashboard.run_summary import RunSummary
from grpodoctor.monitor.dashboard.run_table import RunRow
from grpodoctor.monitor.diagnosis.verdict import VERDICT_ORDER
from grpodoctor.support.numbers import count_of
from grpodoctor.support.safe_text import plain

PENDING = "…"
"""Verdict of a run that was not examined yet."""

_SYMBOLS = {"sick": "✖", "healthy": "✔", "solved": "✔", "unreadable": "⚠", "flat": "▬"}
"""Before the word, so that a verdict is recognized without its color."""
_LONGEST_NAME = 200
_LONGEST_SENTENCE = 400
_ORDER = ("unreadable", *VERDICT_ORDER, PENDING)


def sorted_rows(rows: Sequence[RunRow]) -> list[RunRow]:
    """The runs, worst first; runs that were not examined yet come last."""
    return sorted(rows, key=lambda row: (badness_rank(row.summary), row.key))


def badness_rank(summary: RunSummary | None) -> int:
    """The place of a run among others, worst first; None for one that was not examined yet."""
    verdict = summary.verdict if summary else PENDING
    sick_first = verdict != "sick"
    return _ORDER.index(verdict) + 1 if sick_first and verdict in _ORDER else 0


def run_columns(rows: Sequence[RunRow]) -> dict[str, list[Any]]:
    """One list per column of the table."""
    summaries = [row.summary for row in rows]
    return {
        "Run": [plain(row.key, limit=_LONGEST_NAME) for row in rows],
        "Verdict": [verdict_word(each) for each in summaries],
        "Reward": [list(each.sparkline) if each else [] for each in summaries],
        "Worst finding": [each.finding if each else "" for each in summaries],
        "Since": [each.since if each else None for each in summaries],
        "Cost so far": [each.cost if each else "" for each in summaries],
        "Last step": [each.last_step if each else None for each in summaries],
        "Framework": [plain(each.framework, limit=60) if each else "" for each in summaries],
        "Written": [_moment(each.written) if each else None for each in summaries],
        "Diagnosis": [
            plain(each.sentence, limit=_LONGEST_SENTENCE) if each else "not examined yet"
            for each in summaries
        ],
    }


def verdict_word(summary: RunSummary | None) -> str:
    """The verdict with its symbol."""
    if summary is None:
        return PENDING
    return f"{_SYMBOLS.get(summary.verdict, '')} {summary.verdict}".strip()


def _moment(seconds: float) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds > 0 else None


def progress_phrase(rows: Sequence[RunRow]) -> str:
    """How many runs there are, and how many are left to examine."""
    left = sum(row.summary is None for row in rows)
    found = count_of(len(rows), "run")
    return f"{found}, {left} still to be examined" if left else found


def verdict_counts(rows: Sequence[RunRow]) -> list[tuple[str, int]]:
    """The verdicts that occur, worst first, with the number of runs."""
    verdicts = [row.summary.verdict for row in rows if row.summary]
    order = ["sick", "unreadable", *(kind for kind in VERDICT_ORDER if kind != "sick")]
    return [(kind, verdicts.count(kind)) for kind in order if kind in verdicts]

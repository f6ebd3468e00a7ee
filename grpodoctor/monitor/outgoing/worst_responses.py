"""The responses of a step that are worth reading first, with bounded texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from grpodoctor.monitor.sample_responses import ResponseSource
from grpodoctor.monitor.vitals import format_reading
from grpodoctor.rules.base import Finding
from grpodoctor.runs.records import StepRecord
from grpodoctor.support.safe_text import plain

_LONGEST_TEXT = 1500
_LONGEST_PROMPT = 600
_LONGEST_ID = 200

_Row = dict[str, Any]
_FACTS = ("reward", "length", "correct", "truncated", "logprob_diff_max")

_WORST: tuple[tuple[str, str, Callable[[float], float]], ...] = (
    ("logprob_diff_max", "largest log-probability gap between sampler and learner", float),
    ("reward", "lowest reward", lambda value: -value),
    ("length", "longest response", float),
    ("reward", "highest reward", float),
)
"""Column, reason, and a key that is largest for the response to show."""


def worst_responses(
    source: ResponseSource,
    findings: Iterable[Finding],
    window: Sequence[StepRecord],
    centre: int,
    most: int,
) -> list[dict[str, Any]]:
    """The worst responses of the step in the window that is nearest to `centre` and has any.

    Responses that findings name come first.

    Args:
        source: the run's responses.
        findings: the run's findings.
        window: the steps of the snapshot.
        centre: the step around which it is taken.
        most: maximum number of responses.
    """
    recorded = frozenset(source.steps) & {record.step for record in window}
    if not recorded or not most:
        return []
    step = min(recorded, key=lambda each: (abs(each - centre), each))
    cited = {
        evidence.where: f"{finding.code}: {evidence.metric} "
        f"{format_reading(evidence.metric, evidence.value)}"
        for finding in findings
        for evidence in finding.evidence
        if evidence.where is not None and evidence.step == step
    }
    rows = [row for row in source.rows(step, cited) if row.get("sequence_id")]
    chosen: dict[str, tuple[_Row, str]] = {}
    for row, reason in (*_cited(rows, cited), *_extremes(rows)):
        if len(chosen) < most:
            chosen.setdefault(row["sequence_id"], (row, reason))
    return [_response(row, step, reason) for row, reason in chosen.values()]


def _cited(rows: Sequence[_Row], cited: dict[str, str]) -> Iterable[tuple[_Row, str]]:
    return [(row, cited[row["sequence_id"]]) for row in rows if row["sequence_id"] in cited]


def _extremes(rows: Sequence[_Row]) -> Iterable[tuple[_Row, str]]:
    for column, reason, key in _WORST:
        known = [row for row in rows if _is_number(row.get(column))]
        if known:
            yield max(known, key=lambda row: key(row[column])), reason


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not math.isnan(value)


def _response(row: _Row, step: int, reason: str) -> dict[str, Any]:
    prompt, text = row.get("prompt") or "", row.get("text") or ""
    return {
        "step": step,
        "sequence_id": plain(str(row["sequence_id"]), limit=_LONGEST_ID),
        "why": reason,
        **{name: row.get(name) for name in _FACTS},
        "prompt": _both_ends(prompt, _LONGEST_PROMPT),
        "text": _both_ends(text, _LONGEST_TEXT),
        "text_characters": len(text),
    }


def _both_ends(text: str, longest: int) -> str:
    """A text, or its beginning and its end: the end shows loops and missing answers."""
    if len(text) > longest:
        head, tail = text[: longest * 2 // 3], text[-longest // 3 :]
        text = f"{head}\n[{len(text) - len(head) - len(tail)} characters left out]\n{tail}"
    return plain(text, lines=True)

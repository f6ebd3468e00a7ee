"""Responses of an interval of steps, as a short table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from grpodoctor.monitor.sample_responses import ResponseSource
from grpodoctor.support.safe_text import plain

_LONGEST_TEXT = 400
_LONGEST_ID = 80
_MOST_STEPS = 8
"""Steps that are read: each may have a separate file."""


def responses_of_steps(
    source: ResponseSource | None, first: int, last: int, most: int
) -> list[dict[str, Any]]:
    """The first responses of each recorded step of an interval, evenly taken from the steps.

    Args:
        source: the run's responses.
        first: first step.
        last: last step.
        most: number of responses.
    """
    steps = sorted(step for step in (source.steps if source else ()) if first <= step <= last)
    stride = -(-len(steps) // _MOST_STEPS) or 1
    chosen = steps[::stride]
    each = max(1, most // max(1, len(chosen)))
    return [row for step in chosen for row in islice(_rows(source, step), each)][:most]


def _rows(source: ResponseSource | None, step: int) -> Iterator[dict[str, Any]]:
    for row in source.rows(step) if source else ():
        yield {**row, "step": step}


def response_columns(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """One list per column of the table."""
    return {
        "Step": [row["step"] for row in rows],
        "Reward": [row.get("reward") for row in rows],
        "Correct": [row.get("correct") for row in rows],
        "Tokens": [row.get("length") for row in rows],
        "Truncated": [row.get("truncated") for row in rows],
        "Response": [plain(str(row.get("text") or ""), limit=_LONGEST_TEXT) for row in rows],
        "Sequence": [plain(str(row.get("sequence_id", "")), limit=_LONGEST_ID) for row in rows],
    }

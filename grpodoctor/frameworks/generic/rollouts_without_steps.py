"""Responses in JSON lines without a step in the rows: the name of the file may have it."""

from __future__ import annotations

from pathlib import Path

from grpodoctor.frameworks.registry import GENERIC
from grpodoctor.frameworks.rollout_formats.base import HELDOUT
from grpodoctor.frameworks.rollout_formats.jsonlines import first_rows, json_format
from grpodoctor.frameworks.rollout_formats.response_rows import (
    are_responses,
    is_heldout,
    responses_of,
    step_key,
    step_of,
)

NO_STEP = "they have no step"
"""Why a file of responses in a run's directory is not read: it may be a data set."""


def skip_reason(path: Path) -> str:
    """Why a file is not read unless the user names it."""
    if is_heldout(path):
        return HELDOUT
    return "" if step_of(path) is not None else NO_STEP


def _claims(path: Path, head: bytes) -> bool:
    if path.suffix not in (".jsonl", ".ndjson", ".json"):
        return False
    rows = first_rows(head)
    return are_responses(rows) and not any(step_key([row]) for row in rows)


FORMAT = json_format(
    "generic responses without steps", GENERIC, (), responses_of, step_of, rank=91
)._replace(claims=_claims, skip_reason=skip_reason)

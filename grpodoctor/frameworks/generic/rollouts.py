"""Responses in JSON lines of users' own scripts: a step, a text and a reward per row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpodoctor.frameworks.registry import GENERIC
from grpodoctor.frameworks.rollout_formats.base import HELDOUT
from grpodoctor.frameworks.rollout_formats.jsonlines import first_rows, json_format
from grpodoctor.frameworks.rollout_formats.response_rows import (
    are_responses,
    is_heldout,
    is_list_row,
    repeats_a_step,
    responses_of,
    step_key,
)


def _claims(path: Path, head: bytes) -> bool:
    """Whether rows are responses of training steps, several to a step.

    Rows with a step each are a log, even if they quote a response.
    """
    if path.suffix not in (".jsonl", ".ndjson", ".json"):
        return False
    rows = first_rows(head)
    return are_responses(rows) and _have_steps(rows)


def _have_steps(rows: Sequence[dict[str, Any]]) -> bool:
    return bool(step_key(rows)) and (repeats_a_step(rows) or all(map(is_list_row, rows)))


def _step_of(path: Path) -> int | None:
    del path
    return None


FORMAT = json_format(
    "generic responses with steps", GENERIC, (), responses_of, _step_of, rank=90
)._replace(claims=_claims, skip_reason=lambda path: HELDOUT if is_heldout(path) else "")

"""ms-swift's `completions.jsonl`: one line per log call, with a list for each column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from grpodoctor.frameworks.rollout_formats import columns
from grpodoctor.frameworks.rollout_formats.base import FilePart, Responses
from grpodoctor.frameworks.rollout_formats.jsonlines import json_format
from grpodoctor.frameworks.trl.rollouts import from_columns
from grpodoctor.support.arrays import np


def _columns(
    rows: Sequence[dict[str, Any]], names: Sequence[str], part: FilePart
) -> Responses | None:
    flat, ids = columns.flattened(rows, names, _responses)
    if not flat:
        return None
    keys = {key: None for row in flat for key in row}
    table = {key: columns.values_of(flat, key) for key in list(keys)[:200]}
    steps = columns.steps(flat, "step", part.step)
    return from_columns(table, np.asarray(steps, np.int64), ids)


def _responses(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return columns.responses_in_lists(row, "completion")


def _step_of(path: Path) -> int | None:
    del path
    return None


def _claims(path: Path, head: bytes) -> bool:
    return path.name == "completions.jsonl" or _LINES.claims(path, head)


_LINES = json_format(
    "ms-swift completions",
    "ms-swift",
    ("step", "prompt", "completion", "advantages"),
    _columns,
    _step_of,
    rank=40,
)
FORMAT = _LINES._replace(claims=_claims)

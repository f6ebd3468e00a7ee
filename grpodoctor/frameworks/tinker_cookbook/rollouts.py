"""tinker-cookbook's `iteration_<N>/train_rollout_summaries.jsonl`: lengths and rewards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpodoctor.frameworks.rollout_formats import columns
from grpodoctor.frameworks.rollout_formats.base import Column, FilePart, Responses, folder_number
from grpodoctor.frameworks.rollout_formats.jsonlines import json_format
from grpodoctor.support.arrays import np
from grpodoctor.support.numbers import parse_number

_MOST_TURNS = 10_000


def _columns(
    rows: Sequence[dict[str, Any]], names: Sequence[str], part: FilePart
) -> Responses | None:
    """Read the columns of training responses. Evaluations use other prompts and are left out."""
    chosen = [
        (row, name)
        for row, name in zip(rows, names, strict=True)
        if row.get("split", "train") == "train"
    ]
    if not chosen:
        return None
    kept = [row for row, _ in chosen]
    steps = columns.steps(kept, "iteration", part.step)
    return Responses(
        steps_B=steps,
        names=[_name(row, step) for row, step in zip(kept, steps.tolist(), strict=True)],
        groups=[str(row.get("group_idx", ""))[:50] for row in kept],
        rewards_B=columns.numbers(kept, "total_reward"),
        lengths_B=columns.if_known(columns.floats([_length(row) for row in kept])),
        staleness_B=_staleness(kept, steps),
    )


def _name(row: dict[str, Any], step: int) -> str:
    return f"{step}/{row.get('group_idx')}/{row.get('traj_idx')}"[:200]


def _length(row: dict[str, Any]) -> float | None:
    """Tokens of all turns; None if a turn does not give its length."""
    turns = row.get("steps")
    if not isinstance(turns, list) or not 0 < len(turns) <= _MOST_TURNS:
        return None
    lengths = [parse_number(turn.get("ac_len")) for turn in turns if isinstance(turn, dict)]
    logged = [length for length in lengths if length is not None and length >= 0]
    return sum(logged) if len(logged) == len(turns) else None


def _staleness(
    rows: Sequence[dict[str, Any]], steps: np.ndarray[Any, np.dtype[np.int64]]
) -> Column | None:
    sampled = columns.numbers(rows, "sampling_client_step")
    if sampled is None:
        return None
    return columns.if_known(np.where(sampled >= 0, steps - sampled, np.nan))


def _step_of(path: Path) -> int | None:
    return folder_number(path, "iteration_")


FORMAT = json_format(
    "tinker-cookbook rollout summaries",
    "tinker-cookbook",
    ("total_reward", "group_idx", "traj_idx"),
    _columns,
    _step_of,
)

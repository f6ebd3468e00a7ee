"""tinker-cookbook's `iteration_<N>/train_rollout_summaries.jsonl`: lengths and rewards, no text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grpodoctor.frameworks.rollout_formats import columns as of
from grpodoctor.frameworks.rollout_formats.base import Column, Piece, Responses, folder_number
from grpodoctor.frameworks.rollout_formats.jsonlines import json_format
from grpodoctor.support.numbers import parse_number

_MOST_TURNS = 10_000


def _columns(
    rows: Sequence[dict[str, Any]], names: Sequence[str], piece: Piece
) -> Responses | None:
    """Training alone: the summaries of evaluations are of other prompts."""
    chosen = [
        (row, name)
        for row, name in zip(rows, names, strict=True)
        if row.get("split", "train") == "train"
    ]
    if not chosen:
        return None
    kept = [row for row, _ in chosen]
    steps = of.steps(kept, "iteration", piece.step)
    return Responses(
        steps_B=steps,
        names=[_name(row, step) for row, step in zip(kept, steps.tolist(), strict=True)],
        groups=[str(row.get("group_idx", ""))[:50] for row in kept],
        rewards_B=of.optional(kept, "total_reward"),
        lengths_B=of.known(of.floats([_length(row) for row in kept])),
        staleness_B=_staleness(kept, steps),
    )


def _name(row: dict[str, Any], step: int) -> str:
    return f"{step}/{row.get('group_idx')}/{row.get('traj_idx')}"[:200]


def _length(row: dict[str, Any]) -> float | None:
    """Tokens of all the turns; None if a turn does not say."""
    turns = row.get("steps")
    if not isinstance(turns, list) or not 0 < len(turns) <= _MOST_TURNS:
        return None
    lengths = [
        parse_number(turn.get("ac_len")) if isinstance(turn, dict) else None for turn in turns
    ]
    told = [each for each in lengths if each is not None and each >= 0]
    return sum(told) if len(told) == len(lengths) else None


def _staleness(
    rows: Sequence[dict[str, Any]], steps: np.ndarray[Any, np.dtype[np.int64]]
) -> Column | None:
    sampled = of.optional(rows, "sampling_client_step")
    return None if sampled is None else of.known(np.where(sampled >= 0, steps - sampled, np.nan))


def _step_of(path: Path) -> int | None:
    return folder_number(path, "iteration_")


FORMAT = json_format(
    "tinker-cookbook rollout summaries",
    "tinker-cookbook",
    ("total_reward", "group_idx", "traj_idx"),
    _columns,
    _step_of,
)

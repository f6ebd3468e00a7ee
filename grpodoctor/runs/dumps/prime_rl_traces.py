"""prime-rl's `rollouts/step_<N>/train/all/traces.jsonl`: one verifiers episode a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grpodoctor.runs.carriers.base import number
from grpodoctor.runs.dumps import columns as of
from grpodoctor.runs.dumps.base import Column, Piece, Responses, folder_number
from grpodoctor.runs.dumps.jsonlines import json_format

_MOST_NODES = 4096
_CUT = ("length", "max_tokens", "truncat")
"""In the stop condition of a response that hit the limit."""


def _columns(
    rows: Sequence[dict[str, Any]], names: Sequence[str], piece: Piece
) -> Responses | None:
    found = [
        (row, trace, f"{row.get('id') or name}/{index}"[:200])
        for row, name in zip(rows, names, strict=True)
        for index, trace in enumerate(_objects(row.get("traces")))
    ]
    if not found:
        return None
    tokens = [_generated(trace, "token_ids") for _, trace, _ in found]
    ids = of.ragged(tokens, np.int64)
    entries = [_reward(row, trace) for row, trace, _ in found]
    return Responses(
        steps_B=np.full(len(found), piece.step or 0, np.int64),
        names=[name for _, _, name in found],
        groups=[str(row.get("group", row.get("task", "")))[:500] for row, _, _ in found],
        prompts=[str(row.get("task", ""))[:500] for row, _, _ in found],
        texts=[_text(trace) for _, trace, _ in found],
        tokens=ids if of.has_any(ids) else None,
        rewards_B=of.known(of.floats(entries)),
        truncated_B=_truncated([trace for _, trace, _ in found]),
        advantages_B=of.known(of.floats([_advantage(trace) for _, trace, _ in found])),
    )


def _objects(value: object) -> list[dict[str, Any]]:
    listed = value[:_MOST_NODES] if isinstance(value, list) else []
    return [each for each in listed if isinstance(each, dict)]


def _chosen(trace: dict[str, Any], key: str) -> Iterator[object]:
    """A per-token list over all the nodes of a trace, where its mask says "generated"."""
    for node in _objects(trace.get("nodes")):
        values, mask = node.get(key), node.get("mask")
        if isinstance(values, list):
            if isinstance(mask, list) and len(mask) == len(values):
                yield from (value for value, kept in zip(values, mask, strict=True) if kept)
            elif mask is None:
                yield from values


def _generated(trace: dict[str, Any], key: str) -> list[object]:
    return list(_chosen(trace, key))


def _advantage(trace: dict[str, Any]) -> object:
    return next(_chosen(trace, "advantages"), None)


def _reward(row: dict[str, Any], trace: dict[str, Any]) -> float | None:
    """The total: said as such, or the sum of the named parts."""
    for place in (trace, row):
        for key in ("reward", "rewards"):
            value = place.get(key)
            if isinstance(value, dict):
                parts = [number(each) for each in value.values()]
                told = [each for each in parts if each is not None]
                if told:
                    return sum(told)
            elif (found := number(value)) is not None:
                return found
    return None


def _truncated(traces: Sequence[dict[str, Any]]) -> Column | None:
    said = [trace.get("stop_condition") for trace in traces]
    cut = [
        float(any(word in each for word in _CUT)) if isinstance(each, str) else np.nan
        for each in said
    ]
    return of.known(np.array(cut))


def _text(trace: dict[str, Any]) -> str:
    """What the model itself said, turn by turn."""
    parts = []
    for node in _objects(trace.get("nodes")):
        message = node.get("message")
        if isinstance(message, dict) and message.get("role") == "assistant":
            parts.append(of.text_of(message.get("content")))
    return "\n".join(parts)


def _step_of(path: Path) -> int | None:
    return folder_number(path, "step_")


def _of_training(path: Path) -> bool:
    """Each response once: `effective` holds those of `all` that were trained on."""
    return "eval" not in path.parts and path.parent.name != "effective"


_LINES = json_format("prime-rl traces", "prime-rl", ("traces", "task"), _columns, _step_of, rank=20)
FORMAT = _LINES._replace(claims=lambda path, head: _of_training(path) and _LINES.claims(path, head))

"""prime-rl's `rollouts/step_<N>/train/all/traces.jsonl`: one verifiers episode a line.

An episode holds a trace for each agent, a trace the messages as nodes of a tree: with the tokens
that each adds, a mask of those that the policy sampled, and lists over the sampled ones alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grpodoctor.frameworks.rollout_formats import columns as of
from grpodoctor.frameworks.rollout_formats.base import (
    HELDOUT,
    Column,
    Piece,
    Responses,
    folder_number,
)
from grpodoctor.frameworks.rollout_formats.jsonlines import json_format
from grpodoctor.support.numbers import parse_number

_MOST_NODES = 4096
_CUT = ("length", "max_", "truncat")
"""In the stop condition of a response that hit a limit."""


def _columns(
    rows: Sequence[dict[str, Any]], names: Sequence[str], piece: Piece
) -> Responses | None:
    found = [
        (row, trace, f"{row.get('id') or name}/{index}"[:200])
        for row, name in zip(rows, names, strict=True)
        for index, trace in enumerate(_objects(row.get("traces")))
        if _is_trained_on(trace)
    ]
    if not found:
        return None
    traces = [trace for _, trace, _ in found]
    ids = of.ragged([_generated(trace, "token_ids") for trace in traces], np.int64)
    components = [_components(trace) for trace in traces]
    keys = sorted({key for each in components for key in each})[: of.MOST_COMPONENTS]
    return Responses(
        steps_B=np.full(len(found), piece.step or 0, np.int64),
        names=[name for _, _, name in found],
        groups=[_group(row) for row, _, _ in found],
        prompts=[_prompt(row, trace) for row, trace, _ in found],
        texts=[_text(trace) for trace in traces],
        tokens=ids if of.has_any(ids) else None,
        rewards_B=of.known(of.floats([_reward(row, trace) for row, trace, _ in found])),
        components={
            of.clean(key)[: of.LONGEST_NAME]: of.floats([each.get(key) for each in components])
            for key in keys
        },
        truncated_B=_truncated(traces),
        advantages_B=of.known(of.floats([_advantage(trace) for trace in traces])),
    )


def _is_trained_on(trace: dict[str, Any]) -> bool:
    """Whether its tokens train the policy: those of a judge or an opponent may not."""
    agent = trace.get("agent")
    return not (isinstance(agent, dict) and agent.get("trainable") is False)


def _group(row: dict[str, Any]) -> str:
    """The id of the group, or else the task: its rollouts are the group."""
    group = row.get("group")
    name = group.get("id") if isinstance(group, dict) else group
    return str(name)[:200] if name is not None else _task(row)


def _task(row: dict[str, Any]) -> str:
    """What names the task: its key, its hash, or else what it says."""
    task = row.get("task")
    named = [task.get(key) for key in ("key", "hash")] if isinstance(task, dict) else []
    return next((each[:500] for each in named if isinstance(each, str)), str(task)[:2000])


def _prompt(row: dict[str, Any], trace: dict[str, Any]) -> str:
    """What was asked: the last message before the model's first, or else the task's name."""
    asked = ""
    for node in _objects(trace.get("nodes")):
        message = node.get("message")
        if isinstance(message, dict):
            if message.get("role") == "assistant":
                break
            asked = of.text_of(message.get("content")) or asked
    return asked or _task(row)


def _objects(value: object) -> list[dict[str, Any]]:
    listed = value[:_MOST_NODES] if isinstance(value, list) else []
    return [each for each in listed if isinstance(each, dict)]


def _chosen(trace: dict[str, Any], key: str) -> Iterator[object]:
    """A list over all the nodes of a trace, of the tokens that its mask says were sampled.

    It stands for every token of the node, or for the sampled ones alone.
    """
    for node in _objects(trace.get("nodes")):
        values, mask = node.get(key), node.get("mask")
        if not isinstance(values, list):
            continue
        if not isinstance(mask, list) or len(values) == sum(map(bool, mask)):
            yield from values
        elif len(mask) == len(values):
            yield from (value for value, kept in zip(values, mask, strict=True) if kept)


def _generated(trace: dict[str, Any], key: str) -> list[object]:
    return list(_chosen(trace, key))


def _advantage(trace: dict[str, Any]) -> object:
    return next(_chosen(trace, "advantages"), None)


def _reward(row: dict[str, Any], trace: dict[str, Any]) -> float | None:
    """The total: said as such, or the weighted sum of the named parts."""
    for place in (trace, row):
        for key in ("reward", "rewards"):
            value = place.get(key)
            if isinstance(value, dict):
                told = [part for part in map(_part, value.values()) if part is not None]
                if told:
                    return sum(score * weight for score, weight in told)
            elif (found := parse_number(value)) is not None:
                return found
    return None


def _part(value: object) -> tuple[float, float] | None:
    """A named part of the reward, and its weight; None if it was not scored."""
    if isinstance(value, dict):
        score, weight = parse_number(value.get("score")), parse_number(value.get("weight"))
    else:
        score, weight = parse_number(value), None
    return None if score is None else (score, 1.0 if weight is None else weight)


def _components(trace: dict[str, Any]) -> dict[str, float]:
    """The named parts of the reward, unweighted."""
    rewards = trace.get("rewards")
    if not isinstance(rewards, dict):
        return {}
    found = ((name, _part(value)) for name, value in rewards.items())
    return {name: part[0] for name, part in found if part is not None}


def _truncated(traces: Sequence[dict[str, Any]]) -> Column | None:
    return of.known(np.array([_is_cut(trace) for trace in traces], np.float64))


def _is_cut(trace: dict[str, Any]) -> float:
    """Whether a limit ended it: the framework's, or that of its last answer; NaN if not told."""
    said = trace.get("stop_condition")
    if isinstance(said, str) and any(word in said for word in _CUT):
        return 1.0
    calls = [each for each in _objects(trace.get("calls")) if not each.get("error")]
    if calls:
        return float(calls[-1].get("finish_reason") == "length")
    return 0.0 if isinstance(said, str) else np.nan


def _text(trace: dict[str, Any]) -> str:
    """What the model itself said, turn by turn."""
    parts = []
    for node in _objects(trace.get("nodes")):
        message = node.get("message")
        made_up = node.get("sampled") is False
        if isinstance(message, dict) and message.get("role") == "assistant" and not made_up:
            parts.append(of.text_of(message.get("content")))
    return "\n".join(parts)


def _step_of(path: Path) -> int | None:
    return folder_number(path, "step_")


def _passed_over(path: Path) -> str:
    if "eval" in path.parts:
        return HELDOUT
    return "already among those in all" if path.parent.name == "effective" else ""


FORMAT = json_format(
    "prime-rl traces", "prime-rl", ("traces", "task"), _columns, _step_of, rank=20
)._replace(passed_over=_passed_over)

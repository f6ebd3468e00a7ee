"""prime-rl's `rollouts/step_<N>/train/all/traces.jsonl`: one verifiers episode per line.

An episode holds a trace for each agent. A trace holds the messages as nodes of a tree. A node has
the tokens that it adds, a mask of the tokens that the policy sampled, and lists with a value for
each sampled token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from grpodoctor.frameworks.rollout_formats import columns
from grpodoctor.frameworks.rollout_formats.base import (
    HELDOUT,
    Column,
    FilePart,
    Responses,
    folder_number,
)
from grpodoctor.frameworks.rollout_formats.jsonlines import json_format
from grpodoctor.support.arrays import np
from grpodoctor.support.numbers import parse_number

_MOST_NODES = 4096
_TRUNCATED = ("length", "max_", "truncat")
"""Parts of the stop condition of a truncated response."""


def _columns(
    rows: Sequence[dict[str, Any]], names: Sequence[str], part: FilePart
) -> Responses | None:
    rollouts = [
        (row, trace, f"{row.get('id') or name}/{index}"[:200])
        for row, name in zip(rows, names, strict=True)
        for index, trace in enumerate(_objects(row.get("traces")))
        if _is_trained_on(trace)
    ]
    if not rollouts:
        return None
    traces = [trace for _, trace, _ in rollouts]
    ids = columns.ragged([_generated(trace, "token_ids") for trace in traces], np.int64)
    components = [_components(trace) for trace in traces]
    rewards = [_reward(row, trace) for row, trace, _ in rollouts]
    keys = sorted({key for parts in components for key in parts})[: columns.MOST_COMPONENTS]
    return Responses(
        steps_B=np.full(len(rollouts), part.step or 0, np.int64),
        names=[name for _, _, name in rollouts],
        groups=[_group(row) for row, _, _ in rollouts],
        prompts=[_prompt(row, trace) for row, trace, _ in rollouts],
        texts=[_text(trace) for trace in traces],
        tokens=ids if columns.has_values(ids) else None,
        rewards_B=columns.if_known(columns.floats(rewards)),
        components={
            columns.clean(key)[: columns.LONGEST_NAME]: columns.floats(
                [parts.get(key) for parts in components]
            )
            for key in keys
        },
        truncated_B=_truncated(traces),
        advantages_B=columns.if_known(columns.floats([_advantage(trace) for trace in traces])),
    )


def _is_trained_on(trace: dict[str, Any]) -> bool:
    """Whether the policy is trained on a trace; a judge's or opponent's may be left out."""
    agent = trace.get("agent")
    return not (isinstance(agent, dict) and agent.get("trainable") is False)


def _group(row: dict[str, Any]) -> str:
    """The group's id, or else its task."""
    group = row.get("group")
    name = group.get("id") if isinstance(group, dict) else group
    return str(name)[:200] if name is not None else _task(row)


def _task(row: dict[str, Any]) -> str:
    """The task's key, its hash, or else its content."""
    task = row.get("task")
    named = [task.get(key) for key in ("key", "hash")] if isinstance(task, dict) else []
    return next((name[:500] for name in named if isinstance(name, str)), str(task)[:2000])


def _prompt(row: dict[str, Any], trace: dict[str, Any]) -> str:
    """The last message before the model's first one, or else the task's name."""
    prompt = ""
    for node in _objects(trace.get("nodes")):
        message = node.get("message")
        if isinstance(message, dict):
            if message.get("role") == "assistant":
                break
            prompt = columns.text_of(message.get("content")) or prompt
    return prompt or _task(row)


def _objects(value: object) -> list[dict[str, Any]]:
    entries = value[:_MOST_NODES] if isinstance(value, list) else []
    return [entry for entry in entries if isinstance(entry, dict)]


def _chosen(trace: dict[str, Any], key: str) -> Iterator[object]:
    """The values under a key for all sampled tokens of a trace, node by node.

    A node's list has a value for every token, or only for the sampled ones.
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
    """The total reward, or else the weighted sum of its components."""
    for place in (trace, row):
        for key in ("reward", "rewards"):
            value = place.get(key)
            if isinstance(value, dict):
                scored = [part for part in map(_component, value.values()) if part is not None]
                if scored:
                    return sum(score * weight for score, weight in scored)
            elif (reward := parse_number(value)) is not None:
                return reward
    return None


def _component(value: object) -> tuple[float, float] | None:
    """A component of the reward and its weight; None if it was not scored."""
    if isinstance(value, dict):
        score, weight = parse_number(value.get("score")), parse_number(value.get("weight"))
    else:
        score, weight = parse_number(value), None
    return None if score is None else (score, 1.0 if weight is None else weight)


def _components(trace: dict[str, Any]) -> dict[str, float]:
    """The components of the reward by name, unweighted."""
    rewards = trace.get("rewards")
    if not isinstance(rewards, dict):
        return {}
    scored = ((name, _component(value)) for name, value in rewards.items())
    return {name: part[0] for name, part in scored if part is not None}


def _truncated(traces: Sequence[dict[str, Any]]) -> Column | None:
    return columns.if_known(np.array([_is_truncated(trace) for trace in traces], np.float64))


def _is_truncated(trace: dict[str, Any]) -> float:
    """1 if the framework's limit or the last answer's length limit ended it; NaN if unknown."""
    condition = trace.get("stop_condition")
    if isinstance(condition, str) and any(word in condition for word in _TRUNCATED):
        return 1.0
    calls = [call for call in _objects(trace.get("calls")) if not call.get("error")]
    if calls:
        return float(calls[-1].get("finish_reason") == "length")
    return 0.0 if isinstance(condition, str) else np.nan


def _text(trace: dict[str, Any]) -> str:
    """The messages that the model generated, joined."""
    parts = []
    for node in _objects(trace.get("nodes")):
        message = node.get("message")
        sampled = node.get("sampled") is not False
        if sampled and isinstance(message, dict) and message.get("role") == "assistant":
            parts.append(columns.text_of(message.get("content")))
    return "\n".join(parts)


def _step_of(path: Path) -> int | None:
    return folder_number(path, "step_")


def _skip_reason(path: Path) -> str:
    if "eval" in path.parts:
        return HELDOUT
    return "they duplicate responses in `all`" if path.parent.name == "effective" else ""


FORMAT = json_format(
    "prime-rl traces", "prime-rl", ("traces", "task"), _columns, _step_of, rank=20
)._replace(skip_reason=_skip_reason)

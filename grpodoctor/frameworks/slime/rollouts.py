"""slime's `--dump-details`: `rollout_data/<id>.pt` and `train_data/<id>.pt` from `torch.save`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grpodoctor.errors import RunError
from grpodoctor.frameworks.rollout_formats import columns, pickles
from grpodoctor.frameworks.rollout_formats.base import (
    Column,
    DamageLog,
    DumpFormat,
    FilePart,
    Responses,
    Sequences,
    last_number,
)
from grpodoctor.measure.ragged import Ragged
from grpodoctor.support.arrays import np
from grpodoctor.support.numbers import parse_number

_MOST_TOKENS = 64 * 1024 * 1024
"""Limit on the tokens of a file: a small pickle can repeat one long list many times."""

_PER_SAMPLE = ("log_probs", "rollout_log_probs", "loss_masks", "tokens")


def _read(part: FilePart, damage_log: DamageLog) -> Iterator[Responses]:
    path = Path(part.path)
    loaded = pickles.load_from(part.source)
    if not isinstance(loaded, dict):
        raise RunError(
            "the file is not a rollout dump of slime",
            where=str(path)[:200],
            remedy="pass another file",
        )
    step = columns.step_of(loaded.get("rollout_id"), part.step or 0)
    samples = loaded.get("samples")
    if isinstance(samples, list):
        rows = [sample for sample in samples if isinstance(sample, dict)]
        for _ in range(len(samples) - len(rows)):
            damage_log.damaged_at(path.name, 0, "a sample that is not a mapping")
        if any("loss_masks" in row or "log_probs" in row for row in rows):
            table = {name: [row.get(name) for row in rows] for name in _PER_SAMPLE}
            responses = _training([table], step, path)
        else:
            responses = _rollouts(rows, step, path.name) if rows else None
    else:
        inner = loaded.get("rollout_data", loaded)
        responses = _training(inner if isinstance(inner, list) else [inner], step, path)
    if responses is not None:
        yield responses


def _rollouts(rows: Sequence[Mapping[str, Any]], step: int, file: str) -> Responses:
    """The sampled responses. The other file holds the learner's log-probabilities."""
    tokens = [_generated(row) for row in rows]
    return Responses(
        steps_B=np.full(len(rows), step, np.int64),
        names=[f"{file}#{row.get('index', place)}"[:200] for place, row in enumerate(rows)],
        groups=[str(row.get("group_index", ""))[:50] for row in rows],
        prompts=columns.texts(rows, "prompt"),
        texts=[columns.clean(text) for text in columns.texts(rows, "response")],
        tokens=_ragged(tokens) if all(tokens) else None,
        lengths_B=None if all(tokens) else columns.numbers(rows, "response_length"),
        rewards_B=columns.if_known(columns.floats([_reward(row.get("reward")) for row in rows])),
        truncated_B=_truncated(rows),
    )


def _generated(row: Mapping[str, Any]) -> list[object]:
    """The tokens after the prompt."""
    tokens, length = _as_list(row.get("tokens")), parse_number(row.get("response_length"))
    return tokens[-int(length) :] if length is not None and 0 < length <= len(tokens) else []


def _reward(value: object) -> object:
    """The reward; None for several named rewards, since it is unknown which one counts."""
    if isinstance(value, Mapping):
        return next(iter(value.values())) if len(value) == 1 else None
    return value


def _truncated(rows: Sequence[Mapping[str, Any]]) -> Column | None:
    statuses = columns.values_of(rows, "status")
    return columns.if_known(
        np.array(
            [
                float("trunc" in status.lower()) if isinstance(status, str) else np.nan
                for status in statuses
            ]
        )
    )


def _training(tables: Sequence[object], step: int, path: Path) -> Responses | None:
    """The log-probabilities of the trained tokens. Lengths and rewards come from the rollout file.

    Before format 2 a file holds a table for each rank, since then a mapping for each response.
    """
    per_sample: dict[str, list[list[object]]] = {name: [] for name in _PER_SAMPLE}
    for table in tables:
        if isinstance(table, Mapping):
            for name, values in per_sample.items():
                values += [_as_list(value) for value in _as_list(table.get(name))]
    learner, sampler, mask = (_ragged(per_sample[name]) for name in _PER_SAMPLE[:3])
    if not len(learner) or not learner.fits(sampler):
        return None
    lengths_B = learner.lengths_B
    if mask.fits(learner):
        learner, sampler = (side.where(mask.values_N > 0) for side in (learner, sampler))
    return Responses(
        steps_B=np.full(len(learner), step, np.int64),
        names=[f"{path.name}#{row}" for row in range(len(learner))],
        learner=learner,
        sampler=sampler,
        sequences=lambda: _sequences(per_sample["tokens"], mask, lengths_B),
    )


def _sequences(
    tokens: Sequence[list[object]], mask: Ragged, lengths_B: np.ndarray[Any, np.dtype[np.int64]]
) -> Sequences:
    """Full sequences: a response is at the end of its tokens, and its mask covers only itself."""
    masks: list[object] = []
    for row, ids in enumerate(tokens):
        length = int(lengths_B[row])
        own = mask.row(row).tolist() if len(mask) == len(tokens) else []
        generated = own if len(own) == length else [1.0] * length
        masks.append([0.0] * (len(ids) - length) + generated)
    return Sequences(columns.ragged(tokens, np.int64), columns.ragged(masks))


def _ragged(lists: Sequence[list[object]]) -> Ragged:
    if sum(map(len, lists)) > _MOST_TOKENS:
        raise ValueError(f"more than {_MOST_TOKENS} tokens in one file")
    return columns.ragged(lists)


def _as_list(value: object) -> list[object]:
    """The values of a list, a tuple or a flat tensor; an empty list for anything else."""
    if isinstance(value, list):
        return value
    if isinstance(value, tuple):
        return list(value)
    shape = getattr(value, "shape", None)
    if shape is not None and len(shape) == 1 and shape[0] <= _MOST_TOKENS:
        values = value.tolist()  # type: ignore[attr-defined]  # a tensor, since it has a shape
        return values if isinstance(values, list) else []
    return []


def _claims(path: Path, head: bytes) -> bool:
    folder = path.parent.name
    if path.suffix != ".pt" or folder not in ("rollout_data", "train_data"):
        return False
    return not path.stem.startswith("eval") and head.startswith((pickles.ZIP, pickles.PICKLE))


FORMAT = DumpFormat("slime details", "slime", 30, _claims, last_number, pickles.whole_file, _read)

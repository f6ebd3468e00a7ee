"""slime's `--dump-details`: `rollout_data/<id>.pt` and `train_data/<id>.pt`, by `torch.save`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grpodoctor.errors import RunError
from grpodoctor.frameworks.rollout_formats import columns as of
from grpodoctor.frameworks.rollout_formats import pickles
from grpodoctor.frameworks.rollout_formats.base import (
    Column,
    DumpFormat,
    Notes,
    Piece,
    Responses,
    Sequences,
    last_number,
)
from grpodoctor.measure.ragged import Ragged
from grpodoctor.support.numbers import parse_number

_MOST_TOKENS = 64 * 1024 * 1024
"""Of a file: a small pickle can name one long list many times."""


_PER_SAMPLE = ("log_probs", "rollout_log_probs", "loss_masks", "tokens")


def _read(piece: Piece, notes: Notes) -> Iterator[Responses]:
    path = Path(piece.path)
    loaded = pickles.load_from(piece.source)
    if not isinstance(loaded, dict):
        raise RunError("no dump of slime", where=str(path)[:200], remedy="name another file")
    step = of.step_of(loaded.get("rollout_id"), piece.step or 0)
    samples = loaded.get("samples")
    if isinstance(samples, list):
        rows = [each for each in samples if isinstance(each, dict)]
        for _ in range(len(samples) - len(rows)):
            notes.damaged_at(path.name, 0, "a sample that is no mapping")
        if any("loss_masks" in row or "log_probs" in row for row in rows):
            columns = [{name: [row.get(name) for row in rows] for name in _PER_SAMPLE}]
            found = _training(columns, step, path)
        else:
            found = _rollouts(rows, step, path.name) if rows else None
    else:
        inner = loaded.get("rollout_data", loaded)
        found = _training(inner if isinstance(inner, list) else [inner], step, path)
    if found is not None:
        yield found


def _rollouts(rows: Sequence[Mapping[str, Any]], step: int, file: str) -> Responses:
    """What was sampled; the learner's log-probabilities stand in the other file."""
    tokens = [_generated(row) for row in rows]
    return Responses(
        steps_B=np.full(len(rows), step, np.int64),
        names=[f"{file}#{row.get('index', place)}"[:200] for place, row in enumerate(rows)],
        groups=[str(row.get("group_index", ""))[:50] for row in rows],
        prompts=of.texts(rows, "prompt"),
        texts=[of.clean(text) for text in of.texts(rows, "response")],
        tokens=_ragged(tokens) if all(tokens) else None,
        lengths_B=None if all(tokens) else of.optional(rows, "response_length"),
        rewards_B=of.known(of.floats([_reward(row.get("reward")) for row in rows])),
        truncated_B=_truncated(rows),
    )


def _generated(row: Mapping[str, Any]) -> list[object]:
    """The tokens after the prompt's."""
    tokens, length = _listed(row.get("tokens")), parse_number(row.get("response_length"))
    return tokens[-int(length) :] if length is not None and 0 < length <= len(tokens) else []


def _reward(value: object) -> object:
    """The reward; of several by name, none is known to be the one."""
    if isinstance(value, Mapping):
        return next(iter(value.values())) if len(value) == 1 else None
    return value


def _truncated(rows: Sequence[Mapping[str, Any]]) -> Column | None:
    said = of.pick(rows, "status")
    return of.known(
        np.array(
            [float("trunc" in each.lower()) if isinstance(each, str) else np.nan for each in said]
        )
    )


def _training(parts: Sequence[object], step: int, path: Path) -> Responses | None:
    """What was trained on: log-probabilities. Lengths and rewards count where they were sampled.

    Until its format 2 a file holds a table for each rank, since then a mapping for each response.
    """
    columns: dict[str, list[list[object]]] = {name: [] for name in _PER_SAMPLE}
    for part in parts:
        if isinstance(part, Mapping):
            for name, found in columns.items():
                found += [_listed(each) for each in _listed(part.get(name))]
    learner, sampler, mask = (_ragged(columns[name]) for name in _PER_SAMPLE[:3])
    if not len(learner) or not learner.fits(sampler):
        return None
    lengths_B = learner.lengths_B
    if mask.fits(learner):
        learner, sampler = (each.where(mask.values_N > 0) for each in (learner, sampler))
    return Responses(
        steps_B=np.full(len(learner), step, np.int64),
        names=[f"{path.name}#{row}" for row in range(len(learner))],
        learner=learner,
        sampler=sampler,
        sequences=lambda: _sequences(columns["tokens"], mask, lengths_B),
    )


def _sequences(
    tokens: Sequence[list[object]], mask: Ragged, lengths_B: np.ndarray[Any, np.dtype[np.int64]]
) -> Sequences:
    """Each response stands at the end of its tokens; its mask begins with it."""
    masks: list[object] = []
    for row, ids in enumerate(tokens):
        length = int(lengths_B[row])
        own = mask.row(row).tolist() if len(mask) == len(tokens) else []
        generated = own if len(own) == length else [1.0] * length
        masks.append([0.0] * (len(ids) - length) + generated)
    return Sequences(of.ragged(tokens, np.int64), of.ragged(masks))


def _ragged(lists: Sequence[list[object]]) -> Ragged:
    if sum(map(len, lists)) > _MOST_TOKENS:
        raise ValueError(f"more than {_MOST_TOKENS} tokens in one file")
    return of.ragged(lists)


def _listed(value: object) -> list[object]:
    """A list or a flat tensor as a list."""
    if isinstance(value, list):
        return value
    if isinstance(value, tuple):
        return list(value)
    shape = getattr(value, "shape", None)
    if shape is not None and len(shape) == 1 and shape[0] <= _MOST_TOKENS:
        found = value.tolist()  # type: ignore[attr-defined]  # a tensor: nothing else has a shape
        return found if isinstance(found, list) else []
    return []


def _claims(path: Path, head: bytes) -> bool:
    folder = path.parent.name
    if path.suffix != ".pt" or folder not in ("rollout_data", "train_data"):
        return False
    return not path.stem.startswith("eval") and head.startswith((pickles.ZIP, pickles.PICKLE))


FORMAT = DumpFormat("slime details", "slime", 30, _claims, last_number, pickles.whole_file, _read)

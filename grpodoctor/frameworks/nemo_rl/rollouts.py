"""NeMo RL's `train_data_step<N>.jsonl`: tokens and both log-probabilities, prompt included.

Each line is a batch of one response: what belongs to it stands in a list of one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from grpodoctor.frameworks.rollout_formats import columns as of
from grpodoctor.frameworks.rollout_formats.base import Column, Piece, Responses, Sequences
from grpodoctor.frameworks.rollout_formats.jsonlines import json_format
from grpodoctor.measure.ragged import Ragged

_FILE = re.compile(r"train_data_step(\d{1,12})")
_FIRST = b'"input_lengths"'
"""Stands before all that has an entry for each token."""


def _columns(batches: Sequence[dict[str, Any]], names: Sequence[str], piece: Piece) -> Responses:
    rows = [{key: _single(value) for key, value in batch.items()} for batch in batches]
    tokens = of.ragged(of.pick(rows, "token_ids"), np.int64)
    mask = of.ragged(of.pick(rows, "token_loss_mask"))
    whole = mask.fits(tokens)
    chosen = mask.values_N > 0
    learner, sampler = (
        _generated(of.ragged(of.pick(rows, key)), mask, chosen)
        for key in ("prev_logprobs", "generation_logprobs")
    )
    both = learner is not None and sampler is not None and not _is_placeholder(learner, sampler)
    return Responses(
        steps_B=np.full(len(rows), piece.step or 0, np.int64),
        names=list(names),
        groups=_prompts(tokens, mask) if whole else None,
        tokens=tokens.where(chosen) if whole else None,
        rewards_B=_rewards(rows),
        advantages_B=None if not whole else _advantages(rows, mask),
        learner=learner if both else None,
        sampler=sampler if both else None,
        sequences=(lambda: Sequences(tokens, mask)) if whole else None,
    )


def _single(value: object) -> object:
    """What a list of one holds."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _rewards(rows: Sequence[dict[str, Any]]) -> Column | None:
    """With dynamic sampling `rewards` are those of all that was sampled, in an order of its own."""
    filtered = of.optional(rows, "filtered_rewards")
    return of.optional(rows, "rewards") if filtered is None else filtered


def _generated(
    column: Ragged, mask: Ragged, chosen: np.ndarray[Any, np.dtype[np.bool_]]
) -> Ragged | None:
    return column.where(chosen) if column.fits(mask) and of.has_any(column) else None


def _is_placeholder(learner: Ragged, sampler: Ragged) -> bool:
    """Whether the learner scored nothing: zeros stand there with loss_fn.force_on_policy_ratio."""
    return not learner.values_N.any() and bool(sampler.values_N.any())


def _prompts(tokens: Ragged, mask: Ragged) -> list[str]:
    """What stands before the first generated token names the group: the dump does not."""
    found = []
    for row in range(len(tokens)):
        generated = np.flatnonzero(mask.row(row) > 0)
        end = int(generated[0]) if generated.size else len(tokens.row(row))
        prompt = np.ascontiguousarray(tokens.row(row)[:end])
        found.append(f"{end}/{crc32(prompt.tobytes()):08x}")
    return found


def _advantages(rows: Sequence[dict[str, Any]], mask: Ragged) -> Column | None:
    """One number per response, or one per token: then that of its first generated token."""
    values = of.pick(rows, "advantages")
    return of.known(of.floats([_at_first(each, mask.row(row)) for row, each in enumerate(values)]))


def _at_first(value: object, mask_N: np.ndarray[Any, Any]) -> object:
    if not isinstance(value, list):
        return value
    generated = np.flatnonzero(mask_N > 0)
    return value[generated[0]] if generated.size and generated[0] < len(value) else None


def _step_of(path: Path) -> int | None:
    found = _FILE.search(path.stem)
    return int(found[1]) if found else None


_LINES = json_format(
    "NeMo RL train data",
    "nemo-rl",
    ("token_ids", "token_loss_mask", "generation_logprobs"),
    _columns,
    _step_of,
    rank=20,
)


def _claims(path: Path, head: bytes) -> bool:
    """By its keys, of which a long response may leave but the first in sight; then by its name."""
    named = _step_of(path) is not None and head.lstrip().startswith(b"{") and b"\n" not in head
    return _LINES.claims(path, head) or (named and path.suffix == ".jsonl" and _FIRST in head)


FORMAT = _LINES._replace(claims=_claims)

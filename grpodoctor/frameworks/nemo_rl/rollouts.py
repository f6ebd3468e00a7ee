"""NeMo RL's `train_data_step<N>.jsonl`: tokens and both log-probabilities, including the prompt.

Each line is a batch of one response, so its values are lists with one entry.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from grpodoctor.frameworks.rollout_formats import columns
from grpodoctor.frameworks.rollout_formats.base import Column, FilePart, Responses, Sequences
from grpodoctor.frameworks.rollout_formats.jsonlines import json_format
from grpodoctor.measure.ragged import Ragged
from grpodoctor.support.arrays import np

_FILE = re.compile(r"train_data_step(\d{1,12})")
_FIRST = b'"input_lengths"'
"""This key precedes all keys with a value per token."""


def _columns(batches: Sequence[dict[str, Any]], names: Sequence[str], part: FilePart) -> Responses:
    rows = [{key: _single(value) for key, value in batch.items()} for batch in batches]
    tokens = columns.lists(rows, "token_ids", np.int64)
    mask = columns.lists(rows, "token_loss_mask")
    complete = mask.fits(tokens)
    chosen = mask.values_N > 0
    learner, sampler = (
        _generated(columns.lists(rows, key), mask, chosen)
        for key in ("prev_logprobs", "generation_logprobs")
    )
    both = learner is not None and sampler is not None and not _is_placeholder(learner, sampler)
    return Responses(
        steps_B=np.full(len(rows), part.step or 0, np.int64),
        names=list(names),
        groups=_prompts(tokens, mask) if complete else None,
        tokens=tokens.where(chosen) if complete else None,
        rewards_B=_rewards(rows),
        advantages_B=None if not complete else _advantages(rows, mask),
        learner=learner if both else None,
        sampler=sampler if both else None,
        sequences=(lambda: Sequences(tokens, mask)) if complete else None,
    )


def _single(value: object) -> object:
    """The entry of a list with one entry; other values as they are."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _rewards(rows: Sequence[dict[str, Any]]) -> Column | None:
    """The rewards. With dynamic sampling, `rewards` covers all samples, in another order."""
    filtered = columns.numbers(rows, "filtered_rewards")
    return columns.numbers(rows, "rewards") if filtered is None else filtered


def _generated(
    column: Ragged, mask: Ragged, chosen: np.ndarray[Any, np.dtype[np.bool_]]
) -> Ragged | None:
    return column.where(chosen) if column.fits(mask) and columns.has_values(column) else None


def _is_placeholder(learner: Ragged, sampler: Ragged) -> bool:
    """Whether the learner scored nothing: loss_fn.force_on_policy_ratio writes zeros."""
    return not learner.values_N.any() and bool(sampler.values_N.any())


def _prompts(tokens: Ragged, mask: Ragged) -> list[str]:
    """An id for each prompt, made from its tokens: the dump has no group ids."""
    ids = []
    for row in range(len(tokens)):
        generated = np.flatnonzero(mask.row(row) > 0)
        end = int(generated[0]) if generated.size else len(tokens.row(row))
        prompt = np.ascontiguousarray(tokens.row(row)[:end])
        ids.append(f"{end}/{crc32(prompt.tobytes()):08x}")
    return ids


def _advantages(rows: Sequence[dict[str, Any]], mask: Ragged) -> Column | None:
    """The advantage of each response; of values per token, the first generated token's."""
    values = columns.values_of(rows, "advantages")
    first = [_at_first_generated(value, mask.row(row)) for row, value in enumerate(values)]
    return columns.if_known(columns.floats(first))


def _at_first_generated(value: object, mask_N: np.ndarray[Any, Any]) -> object:
    if not isinstance(value, list):
        return value
    generated = np.flatnonzero(mask_N > 0)
    return value[generated[0]] if generated.size and generated[0] < len(value) else None


def _step_of(path: Path) -> int | None:
    match = _FILE.search(path.stem)
    return int(match[1]) if match else None


_LINES = json_format(
    "NeMo RL train data",
    "nemo-rl",
    ("token_ids", "token_loss_mask", "generation_logprobs"),
    _columns,
    _step_of,
    rank=20,
)


def _claims(path: Path, head: bytes) -> bool:
    """Claim by keys; if a long response leaves only the first key in the head, by name too."""
    named = _step_of(path) is not None and head.lstrip().startswith(b"{") and b"\n" not in head
    return _LINES.claims(path, head) or (named and path.suffix == ".jsonl" and _FIRST in head)


FORMAT = _LINES._replace(claims=_claims)

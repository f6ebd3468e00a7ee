"""prime-rl's `token_exports/step_<N>/rank_<R>.jsonl`: both sides' log-probabilities per token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grpodoctor.frameworks.rollout_formats import columns as of
from grpodoctor.frameworks.rollout_formats.base import Piece, Responses, Sequences, folder_number
from grpodoctor.frameworks.rollout_formats.jsonlines import json_format
from grpodoctor.measure.ragged import Ragged

_FIRST = b'"micro_sequence_idx"'
"""Stands before all that has an entry for each token."""
_PER_TOKEN = ("trainer_logprobs", "inference_logprobs", "entropy")


def _columns(rows: Sequence[dict[str, Any]], names: Sequence[str], piece: Piece) -> Responses:
    """Neither texts nor rewards; lengths stand in the traces beside them, and count there."""
    mask = _sampled(rows, of.ragged(of.pick(rows, "loss_mask")))
    starts, ids = _responses(rows, names, mask)
    lists = {name: of.ragged(of.pick(rows, name)) for name in _PER_TOKEN}
    chosen = mask.values_N > 0
    found = {
        name: Ragged(each.values_N, starts).where(chosen)
        for name, each in lists.items()
        if each.fits(mask) and of.has_any(each)
    }
    whole = "trainer_logprobs" in found and "inference_logprobs" in found

    def sequences() -> Sequences:
        tokens = of.ragged(of.pick(rows, "token_ids"), np.int64)
        if not tokens.fits(mask):
            raise ValueError("token_ids and loss_mask of different lengths")
        return Sequences(*(Ragged(each.values_N, starts) for each in (tokens, mask)))

    return Responses(
        steps_B=np.full(len(ids), piece.step or 0, np.int64),
        names=ids,
        learner=found["trainer_logprobs"] if whole else None,
        sampler=found["inference_logprobs"] if whole else None,
        entropies=found.get("entropy"),
        sequences=sequences,
    )


def _sampled(rows: Sequence[dict[str, Any]], mask: Ragged) -> Ragged:
    """The trained tokens less those of a frozen model, which the policy never sampled.

    Cross entropy alone trains them. A weight of reinforcement that is not told is 1; of the other
    kinds, 0. A token of no advantage has no weight of any kind.
    """
    rl, ce, kl = (of.ragged(of.pick(rows, f"{each}_weights")) for each in ("rl", "ce", "ref_kl"))
    if not (ce.fits(mask) and rl.fits(mask)):
        return mask
    foreign_N = (np.nan_to_num(ce.values_N) != 0) & (rl.values_N == 0)
    if kl.fits(mask):
        foreign_N &= np.nan_to_num(kl.values_N) == 0
    return Ragged(np.where(foreign_N, 0.0, mask.values_N), mask.offsets_B)


def _responses(
    rows: Sequence[dict[str, Any]], names: Sequence[str], mask: Ragged
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], list[str]]:
    """Where each response begins: a line may be packed of several, each from position 0."""
    positions = of.ragged(of.pick(rows, "position_ids"), np.int64)
    firsts = mask.offsets_B[:-1]
    if not positions.fits(mask):
        return mask.offsets_B, list(names)
    begun = np.flatnonzero(positions.values_N == 0)
    starts = np.union1d(begun, firsts[mask.lengths_B > 0])
    of_row = np.searchsorted(mask.offsets_B, starts, side="right") - 1
    inside = starts - mask.offsets_B[of_row]
    ids = [
        f"{names[row]}+{place}" for row, place in zip(of_row.tolist(), inside.tolist(), strict=True)
    ]
    return np.append(starts, mask.offsets_B[-1]).astype(np.int64), ids


def _step_of(path: Path) -> int | None:
    return folder_number(path, "step_")


_LINES = json_format(
    "prime-rl token export",
    "prime-rl",
    ("token_ids", "loss_mask", "inference_logprobs", "trainer_logprobs"),
    _columns,
    _step_of,
    rank=20,
)


def _claims(path: Path, head: bytes) -> bool:
    """By its keys, of which a long response may leave but the first in sight; then by its place."""
    placed = _step_of(path) is not None and path.name.startswith("rank_")
    begun = head.lstrip().startswith(b"{") and b"\n" not in head and _FIRST in head
    return _LINES.claims(path, head) or (placed and begun)


FORMAT = _LINES._replace(claims=_claims)

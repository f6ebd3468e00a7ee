"""prime-rl's `token_exports/step_<N>/rank_<R>.jsonl`: both log-probabilities of each token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpodoctor.frameworks.rollout_formats import columns
from grpodoctor.frameworks.rollout_formats.base import FilePart, Responses, Sequences, folder_number
from grpodoctor.frameworks.rollout_formats.jsonlines import json_format
from grpodoctor.measure.ragged import Ragged
from grpodoctor.support.arrays import np

_FIRST = b'"micro_sequence_idx"'
"""This key precedes all keys with a value per token."""
_PER_TOKEN = ("trainer_logprobs", "inference_logprobs", "entropy")


def _columns(rows: Sequence[dict[str, Any]], names: Sequence[str], part: FilePart) -> Responses:
    """Read the columns. Texts, rewards and lengths are in the traces, which are read separately."""
    mask = _sampled(rows, columns.lists(rows, "loss_mask"))
    starts, ids = _responses(rows, names, mask)
    lists = {name: columns.lists(rows, name) for name in _PER_TOKEN}
    chosen = mask.values_N > 0
    per_token = {
        name: Ragged(column.values_N, starts).where(chosen)
        for name, column in lists.items()
        if column.fits(mask) and columns.has_values(column)
    }
    both = "trainer_logprobs" in per_token and "inference_logprobs" in per_token

    def sequences() -> Sequences:
        tokens = columns.lists(rows, "token_ids", np.int64)
        if not tokens.fits(mask):
            raise ValueError("token_ids and loss_mask have different lengths")
        return Sequences(Ragged(tokens.values_N, starts), Ragged(mask.values_N, starts))

    return Responses(
        steps_B=np.full(len(ids), part.step or 0, np.int64),
        names=ids,
        learner=per_token["trainer_logprobs"] if both else None,
        sampler=per_token["inference_logprobs"] if both else None,
        entropies=per_token.get("entropy"),
        sequences=sequences,
    )


def _sampled(rows: Sequence[dict[str, Any]], mask: Ragged) -> Ragged:
    """The mask of trained tokens without those of a frozen model, which the policy never sampled.

    Only cross entropy trains a frozen model's tokens. A missing RL weight is 1, a missing weight of
    another kind is 0. A token without advantage has no weight of any kind.
    """
    rl, ce, kl = (columns.lists(rows, f"{kind}_weights") for kind in ("rl", "ce", "ref_kl"))
    if not (ce.fits(mask) and rl.fits(mask)):
        return mask
    foreign_N = (np.nan_to_num(ce.values_N) != 0) & (rl.values_N == 0)
    if kl.fits(mask):
        foreign_N &= np.nan_to_num(kl.values_N) == 0
    return Ragged(np.where(foreign_N, 0.0, mask.values_N), mask.offsets_B)


def _responses(
    rows: Sequence[dict[str, Any]], names: Sequence[str], mask: Ragged
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], list[str]]:
    """The start of each response and its id. A line may pack several, each from position 0."""
    positions = columns.lists(rows, "position_ids", np.int64)
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
    """Claim by keys; if a long response leaves only the first key in the head, by path too."""
    placed = _step_of(path) is not None and path.name.startswith("rank_")
    begun = head.lstrip().startswith(b"{") and b"\n" not in head and _FIRST in head
    return _LINES.claims(path, head) or (placed and begun)


FORMAT = _LINES._replace(claims=_claims)

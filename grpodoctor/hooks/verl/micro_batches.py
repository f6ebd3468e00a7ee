"""The tokens of verl's micro-batches, joined to updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpodoctor.hooks.arrays import to_host
from grpodoctor.measure.batch import UpdateBatch

Array = NDArray[Any]
Limits = tuple[float | None, float | None]
_UNSEEN = 0.0
"""Stands for a number that the loss does not see; its reading is absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """The arguments of one call of the loss, copied."""

    new_BT: Array
    old_BT: Array
    advantages_BT: Array
    mask_BT: NDArray[np.bool_]
    weights_BT: Array | None
    loss: float


def micro_batch_of(arguments: Mapping[str, Any], loss: Any) -> MicroBatch:
    """Copy the tokens of a call.

    Args:
        arguments: the arguments of the loss, under verl's names.
        loss: its result.
    """
    mask_BT = to_host(arguments["response_mask"]).astype(bool)
    weights = arguments.get("rollout_is_weights")
    advantages_BT = np.broadcast_to(to_host(arguments["advantages"]), mask_BT.shape)
    return MicroBatch(
        new_BT=to_host(arguments["log_prob"]),
        old_BT=to_host(arguments["old_log_prob"]),
        advantages_BT=advantages_BT,
        mask_BT=mask_BT,
        weights_BT=None if weights is None else np.broadcast_to(to_host(weights), mask_BT.shape),
        loss=float(to_host(loss).reshape(())),
    )


def has_clip_readings(mode: str) -> bool:
    """Whether the tokens that the loss clips are known for certain."""
    return mode in ("vanilla", "gspo")


def join(
    batches: Sequence[MicroBatch], ids: str, mode: str, limits: Limits, config: Any
) -> UpdateBatch:
    """One update from its micro-batches.

    Args:
        batches: the micro-batches, in order.
        ids: prefix of the ids of the responses.
        mode: verl's name of the loss.
        limits: bounds of the clip.
        config: the actor's configuration.
    """
    width = max(each.mask_BT.shape[1] for each in batches)
    mask_BT = _stack([each.mask_BT for each in batches], width)
    weights = [each.weights_BT for each in batches if each.weights_BT is not None]
    new_BT = _stack([each.new_BT for each in batches], width)
    old_BT = _stack([each.old_BT for each in batches], width)
    advantages_BT = _stack([each.advantages_BT for each in batches], width)
    return UpdateBatch(
        sequence_ids=[f"{ids}-{row}" for row in range(len(mask_BT))],
        new_logprobs_BT=new_BT,
        old_logprobs_BT=old_BT,
        advantages_BT=advantages_BT,
        loss_mask_BT=mask_BT,
        loss=_UNSEEN,
        grad_norm=_UNSEEN,
        learning_rate=_UNSEEN,
        weights_BT=_stack(weights, width) if len(weights) == len(batches) else None,
        **_clip_fields(mode, limits, config, (new_BT, old_BT, advantages_BT, mask_BT)),
    )


def clip_metrics(
    prefix: str, mode: str, batch: MicroBatch, low: float | None, high: float | None
) -> dict[str, float]:
    """The clip fractions of one micro-batch by side, which verl logs only as a sum.

    Args:
        prefix: start of the keys.
        mode: verl's name of the loss.
        batch: the micro-batch.
        low: the bound below 1.
        high: the bound above 1.
    """
    if not has_clip_readings(mode) or low is None or high is None:
        return {}
    ratio = _ratio(mode, batch.new_BT, batch.old_BT, batch.mask_BT)
    below = (ratio < 1 - low) & (batch.advantages_BT < 0) & batch.mask_BT
    above = (ratio > 1 + high) & (batch.advantages_BT > 0) & batch.mask_BT
    tokens = max(1, int(batch.mask_BT.sum()))
    return {
        f"{prefix}/clip_low_rate": float(below.sum()) / tokens,
        f"{prefix}/clip_high_rate": float(above.sum()) / tokens,
    }


def _stack(arrays: Sequence[Array], width: int) -> Array:
    padded = [np.pad(each, ((0, 0), (0, width - each.shape[1]))) for each in arrays]
    joined: Array = np.concatenate(padded)
    return joined


def _clip_fields(
    mode: str, limits: Limits, config: Any, tokens: tuple[Array, Array, Array, Array]
) -> dict[str, Any]:
    low, high = limits
    if low is None or high is None or not has_clip_readings(mode):
        return {}
    if mode == "vanilla":
        dual = getattr(config, "clip_ratio_c", None)
        return {"clip_low": low, "clip_high": high, "dual_clip": dual}
    new_BT, old_BT, advantages_BT, mask_BT = tokens
    ratio_B1 = _ratio(mode, new_BT, old_BT, mask_BT)
    signs_B1 = (advantages_BT * mask_BT).sum(axis=1, keepdims=True)
    return {
        "clipped_low_BT": (ratio_B1 < 1 - low) & (signs_B1 < 0),
        "clipped_high_BT": (ratio_B1 > 1 + high) & (signs_B1 > 0),
    }


@np.errstate(over="ignore", invalid="ignore")
def _ratio(mode: str, new_BT: Array, old_BT: Array, mask_BT: Array) -> Array:
    """Importance ratios of tokens, (B, T), or with GSPO of responses, (B, 1)."""
    log_BT = np.where(mask_BT, new_BT.astype(np.float64) - old_BT, 0.0)
    if mode == "gspo":
        counts_B1 = np.maximum(mask_BT.sum(axis=1, keepdims=True), 1)
        log_BT = log_BT.sum(axis=1, keepdims=True) / counts_B1
    ratio: Array = np.exp(log_BT)
    return ratio

"""The tokens that TRL's losses clip."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpodoctor.hooks.trl.captured import LossSettings

Array = NDArray[Any]
_CLIPPED = frozenset({"grpo", "bnpo", "dr_grpo", "dapo", "luspo"})
"""Values of `loss_type` with PPO's clip."""


def clip_fields(
    settings: LossSettings, new_BT: Array, old_BT: Array, advantages_BT: Array, mask_BT: Array
) -> dict[str, Any]:
    """The fields of an `UpdateBatch` that describe the clip; none for a loss without a clip.

    With ratios of whole responses, a response is clipped or not; the flags have shape (B, 1) then.
    """
    if settings.loss_type == "cispo":
        ratio = _ratio(settings, new_BT, old_BT, mask_BT)
        advantages = advantages_BT[:, : ratio.shape[1]]
        high = (ratio > settings.high) & (advantages > 0)
        return {"clipped_low_BT": np.zeros_like(high), "clipped_high_BT": high}
    if settings.loss_type not in _CLIPPED:
        return {}
    if settings.level == "sequence":
        ratio_B1 = _ratio(settings, new_BT, old_BT, mask_BT)
        signs_B1 = advantages_BT[:, :1]
        return {
            "clipped_low_BT": (ratio_B1 < 1 - settings.low) & (signs_B1 < 0),
            "clipped_high_BT": (ratio_B1 > 1 + settings.high) & (signs_B1 > 0),
        }
    return {
        "clip_low": settings.low,
        "clip_high": settings.high,
        "dual_clip": settings.dual,
    }


@np.errstate(over="ignore", invalid="ignore")
def _ratio(settings: LossSettings, new_BT: Array, old_BT: Array, mask_BT: Array) -> Array:
    """Importance ratios of tokens, (B, T), or of responses, (B, 1)."""
    log_BT = np.where(mask_BT, new_BT.astype(np.float64) - old_BT, 0.0)
    if settings.level == "sequence":
        counts_B1 = np.maximum(mask_BT.sum(axis=1, keepdims=True), 1)
        log_BT = log_BT.sum(axis=1, keepdims=True) / counts_B1
    ratio: Array = np.exp(log_BT)
    return ratio

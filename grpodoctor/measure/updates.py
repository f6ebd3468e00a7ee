"""All readings of one optimizer step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from grpodoctor.measure.batch import Flags, UpdateBatch
from grpodoctor.measure.divergence import kl_readings
from grpodoctor.measure.responses import fork_threshold
from grpodoctor.support.arrays import np, with_errstate
from grpodoctor.vocabulary.values import Max, Mean, NotApplicable, Rate, Reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ON_POLICY = NotApplicable(
    "with one update per batch and the learner's own old log-probabilities, the ratio is always 1"
)
_NO_LOSS_TOKENS = NotApplicable("no token is in the loss")
_NO_CLIP = NotApplicable("the loss does not clip")
_NO_DUAL_CLIP = NotApplicable("the loss has no dual clip")
_NONE_CLIPPED_HIGH = NotApplicable("no token is clipped on the high side")
_CLIP_RATES = ("clip/low_rate", "clip/high_rate", "clip/dual_rate", "clip/fork_token_rate")


@with_errstate(over="ignore", invalid="ignore")
def update_readings(update: UpdateBatch, *, on_policy: bool) -> dict[str, Reading]:
    """All readings of one optimizer step, by canonical metric name.

    Args:
        update: the data of the step.
        on_policy: whether there is one update per batch with the learner's own old
            log-probabilities; the ratio is then always 1 and clipping has no meaning.
    """
    readings = _optimizer_readings(update)
    mask_BT = update.loss_mask_BT
    if not mask_BT.any():
        return readings | dict.fromkeys(("ratio/mean", *_CLIP_RATES), _NO_LOSS_TOKENS)
    new_N = update.new_logprobs_BT[mask_BT].astype(np.float64)
    log_ratio_N = new_N - update.old_logprobs_BT[mask_BT]
    ratio_N = np.exp(log_ratio_N)
    readings.update(kl_readings("kl/old_policy", log_ratio_N))
    if update.reference_logprobs_BT is not None:
        to_reference_N = update.reference_logprobs_BT[mask_BT] - new_N
        readings.update(kl_readings("kl/reference", to_reference_N))
    readings.update(_ratio_readings(update, ratio_N, log_ratio_N))
    if update.gate_BT is not None:
        readings["clip/gate_mean"] = Mean.of(update.gate_BT[mask_BT])
    if update.chosen_BT is not None:
        readings["clip/covariance_rate"] = Rate.of(update.chosen_BT[mask_BT])
    if on_policy:
        readings.update(dict.fromkeys(_CLIP_RATES, _ON_POLICY))
    elif not _clips(update):
        readings.update(dict.fromkeys(_CLIP_RATES, _NO_CLIP))
    else:
        readings.update(_clip_readings(update, ratio_N))
    return readings | _correction_readings(update)


def _optimizer_readings(update: UpdateBatch) -> dict[str, Reading]:
    healthy = math.isfinite(update.loss) and math.isfinite(update.grad_norm)
    return {
        "optimizer/loss": Mean.of([update.loss]),
        "optimizer/loss_tokens": Mean.of([update.loss_mask_BT.sum()]),
        "optimizer/grad_norm": Mean.of([update.grad_norm]),
        "optimizer/learning_rate": Mean.of([update.learning_rate]),
        "optimizer/nonfinite": Rate(int(not healthy), 1),
    }


def _ratio_readings(
    update: UpdateBatch, ratio_N: NDArray[np.float64], log_ratio_N: NDArray[np.float64]
) -> dict[str, Reading]:
    """Importance ratios before clipping; a response's ratio is the geometric mean of its tokens."""
    counts_B = update.loss_mask_BT.sum(axis=1)
    filled_B = counts_B > 0
    ends = np.cumsum(counts_B[filled_B])
    starts = ends - counts_B[filled_B]
    ids = [name for name, filled in zip(update.sequence_ids, filled_B, strict=True) if filled]
    sequence_ratios = np.exp(np.add.reduceat(log_ratio_N, starts) / (ends - starts))
    highest = np.maximum.reduceat(ratio_N, starts)
    return {
        "ratio/mean": Mean.of(ratio_N),
        "ratio/max": Max.of(highest, ids),
        "ratio/sequence_max": Max.of(sequence_ratios, ids),
    }


class _Clipped(NamedTuple):
    """Flags of clipped loss tokens, shape (N,), or of clipped responses with loss tokens."""

    low: Flags
    high: Flags


def _clips(update: UpdateBatch) -> bool:
    bounds = (update.clip_low, update.clip_high, update.clipped_low_BT, update.clipped_high_BT)
    return any(bound is not None for bound in bounds)


def _clip_readings(update: UpdateBatch, ratio_N: NDArray[np.float64]) -> dict[str, Reading]:
    """Share of tokens or responses whose gradient the loss clips, by side."""
    mask_BT = update.loss_mask_BT
    advantages_N = update.advantages_BT[mask_BT]
    low = 0.0 if update.clip_low is None else 1 - update.clip_low
    high = math.inf if update.clip_high is None else 1 + update.clip_high
    clipped = _Clipped(
        _flags(update.clipped_low_BT, mask_BT, (advantages_N < 0) & (ratio_N < low)),
        _flags(update.clipped_high_BT, mask_BT, (advantages_N > 0) & (ratio_N > high)),
    )
    readings: dict[str, Reading] = {
        "clip/low_rate": Rate.of(clipped.low),
        "clip/high_rate": Rate.of(clipped.high),
        "clip/dual_rate": _NO_DUAL_CLIP
        if update.dual_clip is None
        else Rate.of((advantages_N < 0) & (ratio_N > update.dual_clip)),
    }
    if clipped.high.shape == ratio_N.shape:
        old_N = update.old_logprobs_BT[mask_BT].astype(np.float64)
        readings["clip/high_probability"] = (
            Mean.of(np.exp(old_N[clipped.high])) if clipped.high.any() else _NONE_CLIPPED_HIGH
        )
    if update.entropy_BT is not None:
        readings["clip/fork_token_rate"] = _fork_rate(update.entropy_BT[mask_BT], clipped)
    return readings


def _flags(flags: Flags | None, mask_BT: Flags, by_rule_N: Flags) -> Flags:
    """The flags that the loss reports, of loss tokens or of responses; PPO's rule without them."""
    if flags is None:
        return by_rule_N
    if flags.shape == mask_BT.shape:
        return flags[mask_BT]
    return flags[mask_BT.any(axis=1), 0]


def _fork_rate(entropies_N: NDArray[np.floating], clipped: _Clipped) -> Reading:
    """Share of clipped tokens among forking tokens."""
    if not clipped.low.shape == clipped.high.shape == entropies_N.shape:
        return NotApplicable("the loss clips whole responses")
    finite_N = np.isfinite(entropies_N)
    if not finite_N.any():
        return NotApplicable("no loss token has a finite entropy")
    forks_N = finite_N & (entropies_N >= fork_threshold(entropies_N[finite_N]))
    return Rate.of((clipped.low | clipped.high)[forks_N])


def _correction_readings(update: UpdateBatch) -> dict[str, Reading]:
    readings: dict[str, Reading] = {}
    if update.weights_BT is not None:
        readings["correction/weight_mean"] = Mean.of(update.weights_BT[update.loss_mask_BT])
    if update.capped_BT is not None:
        readings["correction/capped_rate"] = Rate.of(update.capped_BT[update.loss_mask_BT])
    if update.stale_B is not None:
        bearing_B = update.loss_mask_BT.any(axis=1)
        readings["correction/stale_rate"] = Rate.of(update.stale_B[bearing_B])
    return readings

"""Adaptive entropy bonus: the coefficient rises while the entropy is below a target, else falls.

Formula
    After a batch with H <= target, c <- min(c + step, max), otherwise c <- max(c - step, min). A
    batch uses the c from the previous batch, or 0 if its own H is above the target. H is the mean
    entropy over the batch's generated tokens, measured at the start of the batch.

Denominator
    H is a mean over all generated tokens. The bonus has the denominator of the loss.

Settings
    loss.entropy_target, off by default; Skywork-OR1 uses 0.2. loss.entropy_step 0.005,
    loss.entropy_coefficient_min 0 (also the starting value), loss.entropy_coefficient_max 1.

Effect on metrics
    entropy/mean stays at or above the target. optimizer/entropy_coefficient is the coefficient in
    use, 0 while the entropy is above the target.

Other implementations
    TRL's use_adaptive_entropy with entropy_coef_min, _max and _delta: it adapts at every optimizer
    step, from the entropy of the previous step.

Do not combine with
    A fixed loss.entropy_coefficient, which would be overwritten, and other remedies for falling
    entropy.

Source
    Skywork-OR1, arXiv 2505.22312.
"""

from __future__ import annotations

from typing import NamedTuple

from grpodoctor.trainer.algorithms.losses.settings import LossConfig


class AdaptiveStep(NamedTuple):
    """One step of the controller."""

    coefficient: float
    """For this batch's updates."""
    next_coefficient: float
    """For the next batch."""


def adaptive(coefficient: float, entropy: float, loss: LossConfig) -> AdaptiveStep:
    """The coefficient for a batch with this mean entropy, and for the next batch.

    A NaN entropy leaves the coefficient unchanged.
    """
    if loss.entropy_target is None:
        return AdaptiveStep(loss.entropy_coefficient, coefficient)
    low, high = loss.entropy_coefficient_min, loss.entropy_coefficient_max
    now = min(max(coefficient, low), high)
    if entropy <= loss.entropy_target:
        return AdaptiveStep(now, min(now + loss.entropy_step, high))
    if entropy > loss.entropy_target:
        return AdaptiveStep(0.0, max(now - loss.entropy_step, low))
    return AdaptiveStep(0.0, now)

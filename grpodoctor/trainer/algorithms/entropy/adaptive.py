"""An entropy bonus whose coefficient follows the entropy: up while it is below a target, else down.

Formula
    c <- min(c + step, max) after a batch with H <= target, else max(c - step, min). A batch uses
    the c that those before it left behind, and none at all while its own H is above the target.
    H is the mean entropy over the batch's generated tokens, taken when the batch begins.

Denominator
    Of H: generated tokens, all of them alike. Of the bonus: that of the loss.

Settings
    loss.entropy_target, off by default; Skywork-OR1 uses 0.2. loss.entropy_step 0.005,
    loss.entropy_coefficient_min 0, where it also begins, loss.entropy_coefficient_max 1.

Moves
    entropy/mean stays at or above the target; optimizer/entropy_coefficient is what is in force,
    0 while the entropy is above.

Elsewhere
    TRL's use_adaptive_entropy with entropy_coef_min, _max and _delta: it measures and adapts at
    every optimizer step, and gates by the entropy of the step before.

Not with
    A fixed loss.entropy_coefficient, which it would overwrite, and other cures for a falling
    entropy.

Source
    Skywork-OR1, arXiv 2505.22312.
"""

from __future__ import annotations

from dataclasses import dataclass

from grpodoctor.trainer.algorithms.losses.settings import LossConfig


@dataclass(frozen=True, slots=True)
class Adapted:
    """One step of the controller."""

    in_force: float
    """The coefficient of this batch's updates."""
    state: float
    """What the next batch begins with."""


def adaptive(state: float, entropy: float, loss: LossConfig) -> Adapted:
    """What a batch's mean entropy makes of the coefficient.

    Args:
        state: what the batch before left behind.
        entropy: of this batch, in nats a token; one that is not a number changes nothing.
        loss: with an `entropy_target`; without one the fixed coefficient is in force.
    """
    if loss.entropy_target is None:
        return Adapted(loss.entropy_coefficient, state)
    low, high = loss.entropy_coefficient_min, loss.entropy_coefficient_max
    now = min(max(state, low), high)
    if entropy <= loss.entropy_target:
        return Adapted(now, min(now + loss.entropy_step, high))
    if entropy > loss.entropy_target:
        return Adapted(0.0, max(now - loss.entropy_step, low))
    return Adapted(0.0, now)

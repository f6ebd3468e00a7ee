"""The entropy bonus: what keeps the next token open is rewarded in the loss.

Formula
    -c H per token, H = -sum over the vocabulary of p log p at the sampling temperature, with its
    gradient. It is part of the loss, not of the reward, and H is not -log p of the sampled token.

Denominator
    That of the loss, as for all penalties, so that c means less under a constant denominator.

Settings
    loss.entropy_coefficient, 0 by default. Cui et al. found 0.001 too small, 0.01 to explode and
    0.005 to hold the entropy without a gain. A negative one lowers the entropy.

Moves
    entropy/mean; optimizer/entropy_coefficient is the coefficient in force.

Elsewhere
    verl's entropy_coeff, within the loss's denominator too; TRL's entropy_coef, always the mean
    over tokens whatever the loss's denominator.

Not with
    entropy.adaptive, which sets the same coefficient. Cui et al.'s covariance rules, forking tokens
    and a wider clip serve the same purpose.

Source
    Cui et al. 2025, arXiv 2505.22617.
"""

from __future__ import annotations

from torch import Tensor


def bonus(entropy_BT: Tensor, coefficient: float) -> Tensor:
    """What the bonus adds to the loss per token, shape (B, T).

    Args:
        entropy_BT: over the full vocabulary, in nats, with gradient; zeros outside the mask.
        coefficient: its weight.
    """
    return -coefficient * entropy_BT

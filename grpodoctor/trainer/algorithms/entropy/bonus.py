"""The entropy bonus: the loss rewards a high entropy of the next token.

Formula
    -c H per token, H = -sum over the vocabulary of p log p at the sampling temperature, with its
    gradient. It is part of the loss, not of the reward, and H is not -log p of the sampled token.

Denominator
    That of the loss, as for all penalties, so c has less effect under a constant denominator.

Settings
    loss.entropy_coefficient, 0 by default. In Cui et al. 0.001 was too small, 0.01 exploded, and
    0.005 held the entropy without a gain. A negative coefficient lowers the entropy.

Effect on metrics
    entropy/mean rises. optimizer/entropy_coefficient is the coefficient in use.

Other implementations
    verl's entropy_coeff, also within the loss's denominator. TRL's entropy_coef always takes the
    mean over tokens, whatever the loss's denominator.

Do not combine with
    entropy.adaptive, which sets the same coefficient. Cui et al.'s covariance losses, forking
    tokens and a wider clip serve the same purpose.

Source
    Cui et al. 2025, arXiv 2505.22617.
"""

from __future__ import annotations

from torch import Tensor


def bonus(entropy_BT: Tensor, coefficient: float) -> Tensor:
    """The bonus per token, as a term of the loss, shape (B, T)."""
    return -coefficient * entropy_BT

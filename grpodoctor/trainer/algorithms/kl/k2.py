"""k2: half the squared log-ratio, with the gradient of the reverse KL divergence.

Formula
    log(new / reference)^2 / 2 per token.

Denominator
    That of the loss, as for all penalties.

Settings
    loss.kl_coefficient, 0 by default.

Effect on metrics
    kl/reference/k3 stays bounded. On-policy, the expected gradient is that of KL(new, reference),
    although the value itself is biased.

Other implementations
    verl's kl_penalty mse and k2.

Do not combine with
    No conflict.

Source
    Schulman, Approximating KL Divergence; on the gradients Liu et al., arXiv 2510.01555.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.kl.base import KlInputs


def k2(inputs: KlInputs) -> Tensor:
    """log(new / reference)^2 / 2 per token, shape (B, T)."""
    return inputs.gap().square() / 2

"""The value of k3 with the gradient of k2.

Formula
    k2 - stop(k2) + stop(k3) per token. The reported value is unbiased and never negative; the
    gradient is that of the reverse divergence.

Denominator
    That of the loss, as for all penalties.

Settings
    loss.kl_coefficient, 0 by default.

Effect on metrics
    As k2; optimizer/loss as k3.

Other implementations
    verl's kl_penalty with a trailing plus: k3+, low_var_kl+.

Do not combine with
    No conflict.

Source
    verl; the gradients in Tang and Munos, arXiv 2506.09477.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.kl.base import KlInputs
from grpodoctor.trainer.algorithms.kl.k2 import k2
from grpodoctor.trainer.algorithms.kl.k3 import k3


def k3_straight_through(inputs: KlInputs) -> Tensor:
    """k3 forward and k2 backward per token, shape (B, T)."""
    k2_BT = k2(inputs)
    return k2_BT + (k3(inputs) - k2_BT).detach()

"""k3: the estimator of GRPO, never negative and unbiased in value.

Formula
    reference / new - log(reference / new) - 1 per token.

Denominator
    That of the loss, as for all penalties; in GRPO the mean of response means.

Settings
    loss.kl_coefficient, 0 by default; DeepSeekMath 0.04, DeepSeek-R1 0.001, 0 since DAPO.

Effect on metrics
    kl/reference/k3 stays bounded. If the coefficient is too large, reward/mean levels off.
    On-policy, the expected gradient is that of the forward divergence, KL(reference, new).

Other implementations
    TRL's default multiplies it by the ratio (k3_ratio here). verl's low_var_kl clamps the gap at 20
    and the value at 10.

Do not combine with
    No conflict.

Source
    GRPO, arXiv 2402.03300, Eq. 4; Schulman, Approximating KL Divergence.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.kl.base import KlInputs


def k3(inputs: KlInputs) -> Tensor:
    """Reference / new - log(reference / new) - 1 per token, shape (B, T)."""
    gap_BT = inputs.gap()
    return torch.expm1(gap_BT) - gap_BT

"""The importance ratio times k3: DeepSeek-V3.2's unbiased KL estimate.

Formula
    r k3 per token, r = new / old with its gradient. The derivative with respect to log new is
    r log(new / reference), that of the reverse divergence under samples of the old policy.

Denominator
    That of the loss, as for all penalties.

Settings
    loss.kl_coefficient, 0 by default.

Effect on metrics
    kl/reference/k3 stays bounded, without k3's large gradients for tokens that became very
    unlikely. With engine.old_logprobs = "sampler", r is relative to the sampler.

Other implementations
    TRL's use_bias_correction_kl, on by default.

Do not combine with
    No conflict. It uses the loss's ratio, but not its clip.

Source
    DeepSeek-V3.2, arXiv 2512.02556.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.kl.base import KlInputs
from grpodoctor.trainer.algorithms.kl.k3 import k3
from grpodoctor.trainer.algorithms.log_ratios import bounded_log_ratio


def k3_ratio(inputs: KlInputs) -> Tensor:
    """New / old times k3 per token, shape (B, T)."""
    log_ratio_BT = bounded_log_ratio(inputs.new_logprobs_BT, inputs.old_logprobs_BT)
    return torch.exp(log_ratio_BT) * k3(inputs)

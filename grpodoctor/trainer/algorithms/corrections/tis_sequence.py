"""Truncated importance sampling per response.

Formula
    min(product over the response's tokens of learner / sampler, cap), the same for all its tokens.
    Unbiased below the cap, but the weight compounds with length.

Settings
    cap 2. of_response = "geometric-mean" uses the geometric mean instead of the product, as
    ms-swift does. It does not compound, but it is not the importance weight of the response.

Effect on metrics
    correction/capped_rate and correction/weight_mean: long responses get weights near 0 or at the
    cap.

Other implementations
    verl and TRL (sequence_truncate) agree. ms-swift uses the geometric mean.

Do not combine with
    Another correction, or a loss anchored on the sampler.

Source
    Liu, Li et al. 2025, When Speed Kills Stability.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.corrections.base import Corrected, CorrectionInputs, truncated


def tis_sequence(inputs: CorrectionInputs) -> Corrected:
    """The truncated weight of the response, for each of its tokens."""
    weights_B1 = torch.exp(inputs.response_log_weights())
    return truncated(weights_B1.expand_as(inputs.mask_BT), inputs)

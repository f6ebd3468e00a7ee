"""Truncated importance sampling, a response at a time.

Formula
    min(product over the response's tokens of learner / sampler, cap), the same for its tokens.
    Unbiased below the cap, at the price of a weight that compounds with length.

Settings
    cap 2. of_response = "geometric-mean" takes the geometric mean for the product, as ms-swift
    does: it does not compound, and it is no importance weight of the response.

Effect on metrics
    correction/capped_rate and correction/weight_mean; long responses fall to weights near 0 or
    rise to the cap.

Other implementations
    verl and TRL (sequence_truncate) agree; ms-swift takes the geometric mean for the product.

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

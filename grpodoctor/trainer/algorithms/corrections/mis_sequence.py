"""Masked importance sampling per response.

Formula
    Each token's weight is the product over the response's tokens of learner / sampler, or 0 for all
    tokens if the product is outside floor and cap.

Settings
    cap 2 (TRL 3), floor 0; of_response has the values of tis_sequence.

Effect on metrics
    correction/capped_rate is the fraction of tokens in masked responses. The product compounds, so
    long responses are masked first.

Other implementations
    TRL's default, sequence_mask. ms-swift uses the geometric mean.

Do not combine with
    Another correction, or a loss anchored on the sampler.

Source
    Liu, Li et al. 2025, When Speed Kills Stability.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.corrections.base import Corrected, CorrectionInputs, masked


def mis_sequence(inputs: CorrectionInputs) -> Corrected:
    """The weight of the response for each of its tokens, zero outside the bounds."""
    weights_BT = torch.exp(inputs.response_log_weights()).expand_as(inputs.mask_BT)
    return masked(weights_BT, weights_BT, inputs)

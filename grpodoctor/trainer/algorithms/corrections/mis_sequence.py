"""Masked importance sampling, a response at a time.

Formula
    The product over the response's tokens of learner / sampler, for each of its tokens; 0 for all
    of them where the product lies outside floor and cap.

Settings
    cap 2 (TRL 3), floor 0; of_response as for tis_sequence.

Effect on metrics
    correction/capped_rate is the share of tokens in dropped responses; the product compounds, so
    long responses are dropped first.

Other implementations
    TRL's default, sequence_mask. ms-swift takes the geometric mean.

Do not combine with
    Another correction, or a loss anchored on the sampler.

Source
    Liu, Li et al. 2025, When Speed Kills Stability.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.corrections.base import Corrected, CorrectionInputs, masked


def mis_sequence(inputs: CorrectionInputs) -> Corrected:
    """The weight of the response for each of its tokens, zero outside the band."""
    weights_BT = torch.exp(inputs.response_log_weights()).expand_as(inputs.mask_BT)
    return masked(weights_BT, weights_BT, inputs)

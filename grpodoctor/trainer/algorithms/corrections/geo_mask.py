"""Geometric sequence mask: masks responses by their mean log-weight; tokens keep their weights.

Formula
    w per token, not truncated, if floor <= exp(mean over the response of log w) <= cap, otherwise 0
    for the whole response.

Settings
    The mean is close to 1; floors and caps as tight as 0.999 and 1.001 are used in practice.

Effect on metrics
    correction/capped_rate is the fraction of tokens in masked responses. Unlike mis_sequence, it
    does not grow with length.

Other implementations
    OpenRLHF and NeMo-RL, as seq-mask-tis. Their comments mention truncated token weights, but their
    code does not truncate.

Do not combine with
    Another correction, a loss anchored on the sampler, or a loss with one term per response
    (gspo, gmpo).

Source
    Liu, Li et al. 2025, When Speed Kills Stability.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.corrections.base import Corrected, CorrectionInputs, masked


def geo_mask(inputs: CorrectionInputs) -> Corrected:
    """Learner / sampler per token, zero in responses with a geometric mean outside the bounds."""
    mean_B1 = torch.exp(inputs.mean_log_weights())
    return masked(torch.exp(inputs.log_weights()), mean_B1.expand_as(inputs.mask_BT), inputs)

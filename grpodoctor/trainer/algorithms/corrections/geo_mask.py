"""Geometric sequence mask: responses are judged by their mean log-weight, tokens keep theirs.

Formula
    w per token, not truncated, where floor <= exp(mean over the response of log w) <= cap; 0 for
    the whole response elsewhere.

Settings
    The mean is close to 1: floors and caps as tight as 0.999 and 1.001 are in use.

Effect on metrics
    correction/capped_rate is the share of tokens in dropped responses; it does not grow with
    length, as that of mis_sequence does.

Other implementations
    OpenRLHF and NeMo-RL, as seq-mask-tis; their comments speak of truncated token weights, which
    their code does not have.

Do not combine with
    Another correction, a loss anchored on the sampler, or the one-term losses gspo and gmpo.

Source
    Liu, Li et al. 2025, When Speed Kills Stability.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.corrections.base import Corrected, CorrectionInputs, masked


def geo_mask(inputs: CorrectionInputs) -> Corrected:
    """Learner / sampler per token, zero in responses whose geometric mean is outside the band."""
    mean_B1 = torch.exp(inputs.mean_log_weights())
    return masked(torch.exp(inputs.log_weights()), mean_B1.expand_as(inputs.mask_BT), inputs)

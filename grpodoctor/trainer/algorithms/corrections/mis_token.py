"""Masked importance sampling, token by token: a suspicious weight is dropped, not truncated.

Formula
    w where floor <= w <= cap, else 0, times the token's policy loss; w = learner / sampler when
    the batch began. Inside the band the weight is kept.

Settings
    cap 2 (TRL 3), floor 0. Dropped tokens stay in the denominator.

Effect on metrics
    correction/capped_rate is the share dropped; steadier rewards for fewer effective tokens.

Other implementations
    TRL's token_mask. verl's rollout_rs compares its k1 statistic the other way round, so that its
    bounds act on sampler / learner; where it decouples the two policies, dropped tokens leave the
    denominator.

Do not combine with
    Another correction, a loss anchored on the sampler, or the one-term losses gspo and gmpo.

Source
    Liu, Li et al. 2025, When Speed Kills Stability.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.corrections.base import Corrected, CorrectionInputs, masked


def mis_token(inputs: CorrectionInputs) -> Corrected:
    """Learner / sampler per token, zero outside the band."""
    weights_BT = torch.exp(inputs.log_weights())
    return masked(weights_BT, weights_BT, inputs)

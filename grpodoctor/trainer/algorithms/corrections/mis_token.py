"""Masked importance sampling per token: outlier weights are dropped instead of truncated.

Formula
    w if floor <= w <= cap, otherwise 0, times the token's policy loss; w = learner / sampler at the
    start of the batch.

Settings
    cap 2 (TRL 3), floor 0. Masked tokens stay in the denominator.

Effect on metrics
    correction/capped_rate is the fraction of masked tokens. Rewards are steadier, with fewer
    effective tokens.

Other implementations
    TRL's token_mask. verl's rollout_rs compares its k1 statistic in the other direction, so its
    bounds apply to sampler / learner; if it decouples the two policies, masked tokens leave the
    denominator.

Do not combine with
    Another correction, a loss anchored on the sampler, or a loss with one term per response
    (gspo, gmpo).

Source
    Liu, Li et al. 2025, When Speed Kills Stability.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.corrections.base import Corrected, CorrectionInputs, masked


def mis_token(inputs: CorrectionInputs) -> Corrected:
    """Learner / sampler per token, zero outside the bounds."""
    weights_BT = torch.exp(inputs.log_weights())
    return masked(weights_BT, weights_BT, inputs)

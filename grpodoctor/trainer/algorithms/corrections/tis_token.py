"""Truncated importance sampling per token.

Formula
    min(w, cap) times the token's policy loss, w = learner / sampler at the start of the batch. The
    ratio inside the loss remains learner / old.

Settings
    cap 2; the source uses 2 and 8, TRL 3.

Effect on metrics
    The mismatch/* metrics do not change. entropy/mean and length/mean return to the values of an
    engine without mismatch. correction/capped_rate is the fraction of capped weights.

Other implementations
    verl, TRL (token_truncate), slime and OpenRLHF agree. ms-swift also weights the KL penalty.

Do not combine with
    Another correction, a loss anchored on the sampler, or a loss with one term per response
    (gspo, gmpo).

Source
    Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.corrections.base import Corrected, CorrectionInputs, truncated


def tis_token(inputs: CorrectionInputs) -> Corrected:
    """min(learner / sampler, cap) per token."""
    return truncated(torch.exp(inputs.log_weights()), inputs)

"""Truncated importance sampling, token by token.

Formula
    min(w, cap) times the token's policy loss, w = learner / sampler when the batch began. The ratio
    inside the loss stays learner / old.

Settings
    cap 2; the source uses 2 and 8, TRL 3.

Effect on metrics
    The mismatch/* readings stay; entropy/mean and length/mean return to what a faithful engine
    gives. correction/capped_rate says how often the cap holds.

Other implementations
    verl, TRL (token_truncate), slime and OpenRLHF agree; ms-swift weighs the KL penalty as well.

Do not combine with
    Another correction, or a loss anchored on the sampler. A response's one term in gspo and gmpo
    has no place for it.

Source
    Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.corrections.base import Corrected, CorrectionInputs, truncated


def tis_token(inputs: CorrectionInputs) -> Corrected:
    """min(learner / sampler, cap) per token."""
    return truncated(torch.exp(inputs.log_weights()), inputs)

"""Truncated importance sampling, token by token."""

from __future__ import annotations

import torch

from grpodoctor.trainer.corrections.base import Corrected, CorrectionInputs, truncated


def tis_token(inputs: CorrectionInputs) -> Corrected:
    """min(learner / sampler, cap) per token.

    Source: Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training.
    """
    return truncated(torch.exp(inputs.learner_logprobs_BT - inputs.sampler_logprobs_BT), inputs)

"""Truncated importance sampling, a response at a time."""

from __future__ import annotations

import torch

from grpodoctor.trainer.corrections.base import Corrected, CorrectionInputs, truncated


def tis_sequence(inputs: CorrectionInputs) -> Corrected:
    """min(product over the response's tokens of learner / sampler, cap), the same for its tokens.

    Unbiased below the cap, at the price of a weight that compounds with length.
    """
    gap_BT = inputs.learner_logprobs_BT - inputs.sampler_logprobs_BT
    gap_B1 = torch.where(inputs.mask_BT, gap_BT, 0.0).sum(dim=1, keepdim=True)
    return truncated(torch.exp(gap_B1).expand_as(gap_BT), inputs)

"""Log-probability error mask: drops responses on which sampler and learner disagree too much.

Formula
    1 for every token of a response if the mean over its tokens of exp(|log w|) <= cap, otherwise 0
    for the whole response. Kept tokens are not weighted: w only decides.

Settings
    correction.cap 2, as in NVIDIA's Nemotron 3 recipes. correction.floor has no effect.

Effect on metrics
    correction/capped_rate is the fraction of tokens in masked responses. It stays near 0 with
    healthy engines; a rising rate points to a fault of an engine, which the mask only contains.

Other implementations
    NeMo RL's seq_logprob_error_threshold, which also removes masked responses from the denominator:
    set correction.denominator=kept for that.

Do not combine with
    Another correction, a loss anchored on the sampler, or loss.off_policy_limit, which masks whole
    responses too.

Source
    NeMo RL, nemo_rl/algorithms/grpo.py (compute_and_apply_seq_logprob_error_masking), and its guide
    for Nemotron 3 Nano.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.corrections.base import Corrected, CorrectionInputs


def error_mask(inputs: CorrectionInputs) -> Corrected:
    """1 in responses whose mean multiplicative error is within the cap, otherwise 0."""
    errors_BT = torch.where(inputs.mask_BT, inputs.log_weights().abs().exp(), 0.0)
    lengths_B1 = inputs.mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
    within_B1 = errors_BT.sum(dim=1, keepdim=True) / lengths_B1 <= inputs.settings.cap
    within_BT = within_B1.expand_as(inputs.mask_BT)
    return Corrected(within_BT.to(errors_BT.dtype), ~within_BT & inputs.mask_BT)

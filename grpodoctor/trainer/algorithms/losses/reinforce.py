"""REINFORCE: the gradient of the log-probability, times the advantage.

Formula
    -A log new per token. No ratio: with several updates per batch it takes stale tokens for fresh.

Denominator
    sequence-mean-token-sum: a response is one action, so its tokens are summed, and the mean is
    over responses. Long responses weigh more.

Settings
    None of its own.

Moves
    The gradient's variance, by optimizer/grad_norm, above what a clipped loss shows; there is no
    clip rate.

Elsewhere
    verl's reinforce and OpenRLHF's agree. TRL's RLOOTrainer is another loss, here sequence_clip.

Not with
    Several updates per batch: nothing bounds how far the policy goes. With the leave_one_out
    advantage it is RLOO; do not divide that by a standard deviation as well.

Source
    Williams 1992, Simple statistical gradient-following algorithms; for language models, with the
    leave-one-out baseline, arXiv 2402.14740.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.config.loss_settings import Reinforce


def reinforce(inputs: LossInputs[Reinforce]) -> LossTerms:
    """-A log new per token."""
    logprobs_BT = torch.where(inputs.mask_BT, inputs.new_logprobs_BT, 0.0)
    return LossTerms(-inputs.advantages_BT * logprobs_BT)

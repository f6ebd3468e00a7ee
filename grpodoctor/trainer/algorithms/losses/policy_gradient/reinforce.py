"""REINFORCE: the gradient of the log-probability times the advantage.

Formula
    -A log new per token. There is no ratio: with several updates per batch, stale tokens are
    treated as on-policy.

Denominator
    sequence-mean-token-sum: a response is one action, so its tokens are summed and the mean is over
    responses. Long responses weigh more.

Settings
    None.

Effect on metrics
    The gradient variance (optimizer/grad_norm) is higher than with a clipped loss. There is no clip
    rate.

Other implementations
    verl's reinforce and OpenRLHF's agree. TRL's RLOOTrainer computes another loss, here
    sequence_clip.

Do not combine with
    Several updates per batch: nothing limits how far the policy moves. With the advantage
    leave_one_out this loss is RLOO; do not also divide by a standard deviation.

Source
    Williams 1992, Simple statistical gradient-following algorithms; for language models, with the
    leave-one-out baseline, arXiv 2402.14740.
"""

from __future__ import annotations

from typing import Literal

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.algorithms.losses.settings import Aggregation, LossConfig


class Reinforce(LossConfig):
    """REINFORCE; with the advantage leave_one_out, RLOO."""

    kind: Literal["reinforce"] = "reinforce"
    aggregation: Aggregation = "sequence-mean-token-sum"


def reinforce(inputs: LossInputs[Reinforce]) -> LossTerms:
    """-A log new per token."""
    return LossTerms(-inputs.advantages_BT * inputs.masked_logprobs())

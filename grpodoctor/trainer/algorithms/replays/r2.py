"""R2, vanilla routing replay: the updates use the experts of the old policy.

Formula
    The experts of each token, layer by layer, are those that the learner chose when it scored the
    batch. Their gate weights are the softmax of the current logits, taken at these experts and
    normalised over them where the model does so: the router keeps its gradient, the other experts
    have none.

Denominator
    Not touched: the loss is the one it is used with.

Settings
    engine.routing_replay = "R2". Prompts and responses are replayed alike.

Effect on metrics
    experts/replay_coverage and experts/replay_agreement are 1. Ratios move less between the
    updates of a batch: what is left of new / old is how the weights changed, not which experts
    worked. experts/churn_engine and mismatch/* stay, since the sampler is not asked.
    experts/churn_update is what the routers would choose by themselves, replayed or not.

Other implementations
    verl's router_replay.mode "R2" and slime's --use-routing-replay do the same, through Megatron.
    Here it is a hook on transformers' routers, for Mixtral, Qwen2-MoE and Qwen3-MoE.

Do not combine with
    A dense model. GSPO, which was made to do without it; RSPO, which weighs what it prevents; R3,
    which takes the sampler's experts. With one update a batch there is nothing to replay.

Source
    GSPO, arXiv 2507.18071, section 5.3; named and compared in arXiv 2512.01374, which finds it
    better than R3 where the policy moves little on a batch.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.replays.base import KnownExperts


def r2(known: KnownExperts) -> Tensor | None:
    """The old policy's experts once it has scored; before that its routers are free."""
    return known.old

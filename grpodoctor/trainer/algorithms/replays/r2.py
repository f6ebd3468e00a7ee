"""R2, vanilla routing replay: updates use the experts of the old policy.

Formula
    Each token's experts, layer by layer, are those that the learner chose when it scored the batch.
    Their gate weights are the softmax of the current logits, taken at these experts and normalized
    over them if the model does so. The router keeps its gradient; the other experts have none.

Denominator
    Unchanged.

Settings
    engine.routing_replay = "R2". Prompts and responses are replayed alike.

Effect on metrics
    experts/replay_coverage and experts/replay_agreement are 1. Ratios move less between the updates
    of a batch: new / old reflects only the change of weights, not of experts. experts/churn_engine
    and mismatch/* do not change, because the sampler is not involved. experts/churn_update compares
    what the routers would choose without replay.

Other implementations
    verl's router_replay.mode "R2" and slime's --use-routing-replay, through Megatron. Here it is a
    hook on transformers' routers, for Mixtral, Qwen2-MoE and Qwen3-MoE.

Do not combine with
    A dense model; GSPO, which was designed to work without it; RSPO, which downweights the shifts
    that replay prevents; R3, which uses the sampler's experts. With one update per batch it has no
    effect.

Source
    GSPO, arXiv 2507.18071, section 5.3; named and compared in arXiv 2512.01374, which finds it
    better than R3 if the policy moves little on a batch.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.replays.base import KnownExperts


def r2(known: KnownExperts) -> Tensor | None:
    """The old policy's experts after scoring; no constraint before."""
    return known.old

"""R3, rollout routing replay: the learner uses the experts of the engine that sampled.

Formula
    The experts of each token, layer by layer, are those that worked in the engine when it read the
    token; they are forced when the old policy is scored and in every update. Gate weights are
    recomputed from the learner's own logits over these experts, as in r2.

Denominator
    Not touched: the loss is the one it is used with.

Settings
    engine.routing_replay = "R3". Prompts and responses are replayed alike; the last token of a
    response is never read and has no experts.

Effect on metrics
    experts/churn_engine falls to 0, experts/replay_coverage and experts/replay_agreement are 1,
    mismatch/* falls by what routing had added to it, which is little where the weights themselves
    are coarse. A reference model keeps its own routing.

Other implementations
    verl's router_replay.mode "R3" with rollout.enable_rollout_routing_replay, slime's
    --use-rollout-routing-replay. vLLM returns routed experts from its GPU workers only; they are
    not read here, so that R3 needs the built-in engine.

Do not combine with
    A dense model; vLLM; GSPO, RSPO and R2, as in r2. It is orthogonal to DPPO.

Source
    arXiv 2510.11370, known from its abstract and from code; compared in arXiv 2512.01374: no gain
    on-policy, the better one where the policy moves much on a batch.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.replays.base import KnownExperts


def r3(known: KnownExperts) -> Tensor | None:
    """The sampler's experts, before and after scoring."""
    return known.sampler

"""R3, rollout routing replay: the learner uses the experts of the sampling engine.

Formula
    Each token's experts, layer by layer, are those that the engine used when it processed the
    token. The learner uses them when it scores the batch and in every update. Gate weights are
    recomputed from the learner's own logits over these experts, as in r2.

Denominator
    Unchanged.

Settings
    engine.routing_replay = "R3". Prompts and responses are replayed alike. The engine never
    processes the last token of a response, so that token has no experts.

Effect on metrics
    experts/churn_engine falls to 0; experts/replay_coverage and experts/replay_agreement are 1.
    mismatch/* falls by the share that routing caused, which is small if the sampler's weights are
    coarsely quantized. A reference model keeps its own routing.

Other implementations
    verl's router_replay.mode "R3" with rollout.enable_rollout_routing_replay and slime's
    --use-rollout-routing-replay. vLLM returns routed experts only from its GPU workers. grpodoctor
    does not read them, so R3 requires the built-in engine.

Do not combine with
    A dense model; vLLM; GSPO, RSPO and R2, as for r2. It can be combined with DPPO.

Source
    arXiv 2510.11370 (abstract and code only); compared in arXiv 2512.01374: no gain on-policy,
    better than R2 if the policy moves far on a batch.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.replays.base import KnownExperts


def r3(known: KnownExperts) -> Tensor | None:
    """The sampler's experts, before and after scoring."""
    return known.sampler

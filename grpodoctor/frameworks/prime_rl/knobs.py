"""prime-rl: keys of its TOML, checked against v0.8.1.

Its loss is anchored on the sampler: tokens are dropped where learner and sampler probability lie
too far apart, so there is neither a PPO clip nor a correction to add.
"""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.knob_spelling import (
    Spelled,
    Table,
    always,
    choice,
    fixed,
    lacks,
    same,
    times,
)
from grpodoctor.vocabulary.knobs import Setting

_NAME = "prime-rl"
_ANCHORED = "its loss is anchored on the sampler and masks tokens that are too far from it"


def _no_clip(side: str) -> str:
    key = f"trainer.loss.dppo_mask_{side}"
    return f"there is no PPO clip; {key} bounds the difference of probabilities, not their ratio"


def _prompts(setting: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    return (times("orchestrator.batch_size", "group_size", setting, knobs, "counts responses"),)


TABLE: Table = {
    "loss": lacks(_NAME, 'write the loss yourself with trainer.loss.type = "custom"'),
    "clip_low": lacks(_NAME, _no_clip("low")),
    "clip_high": lacks(_NAME, _no_clip("high")),
    "aggregation": choice(
        {"token-mean": fixed("prime-rl always averages over all tokens of the batch")},
        lacks(_NAME, "the loss is always averaged over all tokens of the batch"),
    ),
    "advantage": choice(
        {"centred": fixed("prime-rl never divides by the standard deviation")},
        lacks(_NAME, "advantages are always the reward minus the group's mean"),
    ),
    "correction": lacks(_NAME, _ANCHORED),
    "correction_cap": lacks(_NAME, _ANCHORED),
    "old_logprobs": choice(
        {"sampler": fixed("prime-rl always uses the sampler's log-probabilities")},
        lacks(_NAME, _ANCHORED),
    ),
    "dynamic_sampling": choice(
        {
            True: (
                Spelled(
                    "orchestrator.train.filter_zero_advantages", "true", "on unless switched off"
                ),
            ),
            False: (Spelled("orchestrator.train.filter_zero_advantages", "false"),),
        },
        lacks(_NAME, "use orchestrator.train.filter_zero_advantages"),
    ),
    "overlong": choice(
        {"none": fixed("leave out orchestrator.algo.length_penalty")},
        lacks(_NAME, "orchestrator.algo.length_penalty is its own punishment of length"),
    ),
    "overlong_buffer": lacks(_NAME, "see orchestrator.algo.length_penalty"),
    "kl_coefficient": choice(
        {0.0: fixed("prime-rl has no penalty to a reference model")},
        lacks(_NAME, "trainer.loss.kl_tau pulls toward the sampler, not toward a reference"),
    ),
    "entropy_coefficient": lacks(_NAME, 'add it in a loss of your own, trainer.loss.type="custom"'),
    "learning_rate": same("trainer.optim.lr"),
    "temperature": same("orchestrator.train.sampling.temperature"),
    "group_size": same("orchestrator.group_size"),
    "prompts_per_batch": _prompts,
    "updates_per_batch": choice(
        {1: fixed("prime-rl always makes one update per batch")},
        lacks(_NAME, "there is always one update per batch"),
    ),
    "max_length": same("orchestrator.train.sampling.max_completion_tokens"),
    "routing_replay": choice(
        {
            "none": (Spelled("trainer.enable_router_replay", "false"),),
            "R3": (
                Spelled("trainer.enable_router_replay", "true"),
                Spelled(
                    "inference.vllm.enable_return_routed_experts",
                    "true",
                    "inference.enable_return_routed_experts up to 0.8.0",
                ),
            ),
        },
        lacks(_NAME, "trainer.enable_router_replay replays the sampler's routing, R3"),
    ),
    "sampler_sync_every": lacks(
        _NAME,
        "weights go out after every step; bound staleness with orchestrator.max_off_policy_steps",
    ),
}


def _sampler_dtype(setting: Setting, _: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    older = "inference.model.dtype up to 0.8.0"
    return (Spelled("inference.vllm.dtype", f'"{setting}"', older),)


ENGINES: Table = {
    "sampler_dtype": _sampler_dtype,
    "learner_dtype": choice(
        {"bfloat16": fixed("prime-rl's trainer always computes in bfloat16")},
        lacks(_NAME, "the trainer always computes in bfloat16"),
    ),
    "float32_head": always(Spelled("inference.enable_fp32_lm_head", "true", "the default")),
    "sampler_tensor_parallel": same(
        "inference.vllm.tensor_parallel_size", "inference.parallel.tp up to 0.8.0"
    ),
    "unquantised_sampler": fixed(
        "leave out inference.vllm.quantization, and serve a checkpoint that is not quantised"
    ),
    "unquantised_cache": always(Spelled("inference.vllm.kv_cache_dtype", '"auto"')),
    "whole_distribution": fixed(
        "prime-rl sends top_p 1: look for top_k and min_p in orchestrator.train.sampling.extra_body"
    ),
    "processed_logprobs": always(
        Spelled("inference.vllm.logprobs_mode", '"processed_logprobs"', "the default")
    ),
    "no_prefix_cache": always(Spelled("inference.vllm.enable_prefix_caching", "false")),
    "balanced_routers": always(Spelled("trainer.model.freeze_moe_router", "true")),
}

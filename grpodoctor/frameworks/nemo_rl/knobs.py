"""NeMo RL: keys of its YAML, as overrides, checked against the main branch after v0.7."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.knob_spelling import (
    Spelled,
    Table,
    always,
    choice,
    fixed,
    known,
    lacks,
    quotient,
    same,
)
from grpodoctor.vocabulary.knobs import Setting

_NAME = "NeMo RL"
_SHAPING = "grpo.reward_shaping"


def _soft_overlong(_: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    return (
        Spelled(f"{_SHAPING}.enabled", "true"),
        Spelled(
            f"{_SHAPING}.overlong_buffer_length",
            known(knobs, "overlong_buffer", "<a fifth of the limit>"),
        ),
        Spelled(f"{_SHAPING}.overlong_buffer_penalty", "1"),
        Spelled(
            f"{_SHAPING}.max_response_length", known(knobs, "max_length", "<the length limit>")
        ),
    )


def _updates(setting: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    over = ("prompts_per_batch", "group_size")
    key = "policy.train_global_batch_size"
    return (quotient(key, over, setting, knobs, "counts responses"),)


TABLE: Table = {
    "loss": choice(
        {
            "ppo_clip": (
                Spelled("loss_fn.use_cispo", "false"),
                Spelled("loss_fn.sequence_level_importance_ratios", "false"),
            ),
            "gspo": (
                Spelled("loss_fn.use_cispo", "false"),
                Spelled("loss_fn.sequence_level_importance_ratios", "true"),
            ),
        },
        lacks(_NAME, "see loss_fn for the variants that it has"),
    ),
    "clip_low": same("loss_fn.ratio_clip_min"),
    "clip_high": same("loss_fn.ratio_clip_max"),
    "aggregation": choice(
        {
            "sequence-mean": (Spelled("loss_fn.token_level_loss", "false"),),
            "token-mean": (Spelled("loss_fn.token_level_loss", "true"),),
        },
        lacks(_NAME, "use loss_fn.token_level_loss=true, the mean over all tokens"),
    ),
    "advantage": choice(
        {
            "group": (Spelled("grpo.normalize_rewards", "true"),),
            "centred": (Spelled("grpo.normalize_rewards", "false"),),
        },
        lacks(_NAME, "use grpo.normalize_rewards and grpo.use_leave_one_out_baseline"),
    ),
    "correction": choice(
        {
            "none": (Spelled("loss_fn.use_importance_sampling_correction", "false"),),
            "tis_token": (
                Spelled("loss_fn.use_importance_sampling_correction", "true"),
                Spelled("loss_fn.truncated_importance_sampling_type", "tis"),
            ),
        },
        lacks(_NAME, "use loss_fn.truncated_importance_sampling_type=tis, which is per token"),
    ),
    "correction_cap": same("loss_fn.truncated_importance_sampling_ratio"),
    "old_logprobs": choice(
        {"recompute": fixed("NeMo RL always recomputes them with the policy")},
        lacks(_NAME, "old log-probabilities always come from the policy"),
    ),
    "dynamic_sampling": choice(
        {
            True: (
                Spelled("grpo.use_dynamic_sampling", "true"),
                Spelled("grpo.dynamic_sampling_max_gen_batches", "10"),
            ),
            False: (Spelled("grpo.use_dynamic_sampling", "false"),),
        },
        lacks(_NAME, "use grpo.use_dynamic_sampling"),
    ),
    "overlong": choice(
        {
            "none": (
                Spelled("grpo.overlong_filtering", "false"),
                Spelled(f"{_SHAPING}.enabled", "false"),
            ),
            "mask": (Spelled("grpo.overlong_filtering", "true"),),
            "soft-punishment": _soft_overlong,
        },
        lacks(_NAME, "use grpo.overlong_filtering or grpo.reward_shaping"),
    ),
    "overlong_buffer": same(f"{_SHAPING}.overlong_buffer_length"),
    "kl_coefficient": same("loss_fn.reference_policy_kl_penalty"),
    "entropy_coefficient": lacks(_NAME, "add it in a loss function of your own"),
    "learning_rate": same(
        "policy.optimizer.kwargs.lr", "with Megatron: policy.megatron_cfg.optimizer.lr"
    ),
    "temperature": same("policy.generation.temperature"),
    "group_size": same("grpo.num_generations_per_prompt"),
    "prompts_per_batch": same("grpo.num_prompts_per_step"),
    "updates_per_batch": _updates,
    "max_length": same("policy.generation.max_new_tokens"),
    "routing_replay": choice(
        {
            "none": (Spelled("policy.router_replay.enabled", "false"),),
            "R3": (Spelled("policy.router_replay.enabled", "true"),),
        },
        lacks(_NAME, "policy.router_replay replays the sampler's routing, R3"),
    ),
    "sampler_sync_every": fixed(
        "weights are synced at every step; with asynchronous training bound staleness with "
        "grpo.async_grpo.max_trajectory_age_steps"
    ),
}

_GENERATION = "policy.generation"

ENGINES: Table = {
    "sampler_dtype": same(f"{_GENERATION}.vllm_cfg.precision"),
    "learner_dtype": same("policy.precision", "the sampler follows unless it has its own"),
    "float32_head": lacks(_NAME, "vLLM's head computes in policy.generation.vllm_cfg.precision"),
    "sampler_tensor_parallel": same(f"{_GENERATION}.vllm_cfg.tensor_parallel_size"),
    "unquantised_sampler": always(
        Spelled(f"{_GENERATION}.vllm_cfg.precision", "${policy.precision}")
    ),
    "unquantised_cache": always(Spelled(f"{_GENERATION}.vllm_cfg.kv_cache_dtype", "auto")),
    "whole_distribution": always(
        Spelled(f"{_GENERATION}.top_p", "1.0"), Spelled(f"{_GENERATION}.top_k", "null")
    ),
    "processed_logprobs": always(
        Spelled(f"{_GENERATION}.vllm_cfg.logprobs_mode", "processed_logprobs")
    ),
    "no_prefix_cache": always(Spelled(f"++{_GENERATION}.vllm_cfg.enable_prefix_caching", "false")),
    "balanced_routers": always(
        Spelled(
            "policy.megatron_cfg.freeze_moe_router", "true", "it has no auxiliary loss by default"
        )
    ),
}

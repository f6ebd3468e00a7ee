"""open-instruct: flags of its GRPO programs, checked against the main branch after v0.3."""

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
)
from grpodoctor.vocabulary.knobs import Setting

_NAME = "open-instruct"
_MASK_ONLY = "use --mask_truncated_completions True, or shape your own reward"


def _constant(_: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    sizes = [knobs.get(name) for name in ("prompts_per_batch", "group_size", "max_length")]
    total = 1
    for size in sizes:
        if not isinstance(size, int):
            return (Spelled("--loss_denominator", "<responses per update x --response_length>"),)
        total *= size
    updates = knobs.get("updates_per_batch", 1)
    number = total // updates if isinstance(updates, int) else total
    return (Spelled("--loss_denominator", str(number), "responses per update times the limit"),)


TABLE: Table = {
    "loss": choice(
        {"ppo_clip": (Spelled("--loss_fn", "dapo"),)},
        lacks(_NAME, "see --loss_fn for the variants that it has"),
    ),
    "clip_low": same("--clip_lower"),
    "clip_high": same("--clip_higher"),
    "aggregation": choice(
        {
            "token-mean": (Spelled("--loss_denominator", "token"),),
            "constant": _constant,
        },
        lacks(_NAME, "use --loss_denominator token, the mean over all tokens"),
    ),
    "advantage": choice(
        {
            "group": (Spelled("--advantage_normalization_type", "standard"),),
            "centred": (Spelled("--advantage_normalization_type", "centered"),),
        },
        lacks(_NAME, "use --advantage_normalization_type standard or centered"),
    ),
    "correction": choice(
        {
            "none": (Spelled("--use_rho_correction", "False"),),
            "tis_token": (
                Spelled("--use_rho_correction", "True"),
                Spelled("--rho_mask_sequence_level", "False"),
            ),
        },
        lacks(_NAME, "use --use_rho_correction True, which truncates per token"),
    ),
    "correction_cap": same("--rho_clamp_upper_bound"),
    "old_logprobs": choice(
        {
            "recompute": (Spelled("--use_vllm_logprobs", "False"),),
            "sampler": (Spelled("--use_vllm_logprobs", "True"),),
        },
        lacks(_NAME, "use --use_vllm_logprobs"),
    ),
    "dynamic_sampling": choice(
        {
            True: (
                Spelled("--filter_zero_std_samples", "True"),
                Spelled("--active_sampling", "True"),
            ),
            False: (Spelled("--active_sampling", "False"),),
        },
        lacks(_NAME, "use --active_sampling"),
    ),
    "overlong": choice(
        {
            "none": (Spelled("--mask_truncated_completions", "False"),),
            "mask": (Spelled("--mask_truncated_completions", "True"),),
        },
        lacks(_NAME, _MASK_ONLY),
    ),
    "overlong_buffer": lacks(_NAME, _MASK_ONLY),
    "kl_coefficient": same("--beta", "needs --load_ref_policy True"),
    "entropy_coefficient": lacks(_NAME, "raise --clip_higher or --temperature instead"),
    "learning_rate": same("--learning_rate"),
    "temperature": same("--temperature"),
    "group_size": same("--num_samples_per_prompt_rollout"),
    "prompts_per_batch": same("--num_unique_prompts_rollout"),
    "updates_per_batch": same("--num_mini_batches"),
    "max_length": same("--response_length"),
    "routing_replay": choice(
        {"none": fixed("open-instruct never replays any routing")},
        lacks(_NAME, "train in a framework that has it, or freeze the routers"),
    ),
    "sampler_sync_every": fixed(
        "weights are synced after every step; bound staleness with --async_steps"
    ),
}

ENGINES: Table = {
    "sampler_dtype": choice(
        {"bfloat16": fixed("open-instruct always samples in bfloat16")},
        lacks(_NAME, "vLLM's dtype is bfloat16, in open_instruct/vllm_utils.py"),
    ),
    "learner_dtype": choice(
        {
            "bfloat16": (Spelled("--model_dtype", "bfloat16"),),
            "float32": (Spelled("--model_dtype", "float32", "in grpo.py, not in grpo_fast.py"),),
        },
        lacks(_NAME, "--model_dtype takes bfloat16 or float32"),
    ),
    "float32_head": lacks(_NAME, "vLLM's head computes in bfloat16"),
    "sampler_tensor_parallel": same("--vllm_tensor_parallel_size"),
    "unquantised_sampler": fixed(
        "open-instruct quantises no sampler: name a checkpoint that is not quantised"
    ),
    "unquantised_cache": fixed("open-instruct never quantises the cache"),
    "whole_distribution": always(Spelled("--vllm_top_p", "1.0")),
    "processed_logprobs": fixed("open-instruct always asks for processed log-probabilities"),
    "no_prefix_cache": always(Spelled("--vllm_enable_prefix_caching", "False")),
    "balanced_routers": lacks(_NAME, "train with a lower learning rate instead"),
}

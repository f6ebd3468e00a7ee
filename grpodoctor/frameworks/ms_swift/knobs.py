"""ms-swift: command-line flags of `swift rlhf --rlhf_type grpo`, checked against 4.6."""

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
    same,
    times,
)
from grpodoctor.vocabulary.knobs import Setting

_NAME = "ms-swift"
_MODE = "--rollout_importance_sampling_mode"
_MEGATRON = "of megatron rlhf, with megatron-core 0.16 or newer"


def _soft_overlong(_: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    return (
        Spelled("--reward_funcs", "<yours> soft_overlong"),
        Spelled("--soft_max_length", known(knobs, "max_length", "<--max_completion_length>")),
        Spelled("--soft_cache_length", known(knobs, "overlong_buffer", "<a fifth of it>")),
    )


def _prompts(setting: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    return (times("--generation_batch_size", "group_size", setting, knobs, "counts completions"),)


TABLE: Table = {
    "loss": choice(
        {
            "ppo_clip": (Spelled("--importance_sampling_level", "token"),),
            "gspo": (Spelled("--importance_sampling_level", "sequence"),),
            "gspo_token": (Spelled("--importance_sampling_level", "sequence_token"),),
        },
        lacks(_NAME, "see --loss_type for the variants that it has"),
    ),
    "clip_low": same("--epsilon"),
    "clip_high": same("--epsilon_high"),
    "aggregation": choice(
        {
            "sequence-mean": (Spelled("--loss_type", "grpo"),),
            "token-mean": (Spelled("--loss_type", "dapo"),),
            "constant": (
                Spelled(
                    "--loss_type",
                    "dr_grpo",
                    "the denominator alone: Dr. GRPO needs --scale_rewards none as well",
                ),
            ),
        },
        lacks(_NAME, "use --loss_type dapo, the mean over all tokens of the batch"),
    ),
    "advantage": choice(
        {
            "group": (Spelled("--scale_rewards", "group"),),
            "centred": (Spelled("--scale_rewards", "none"),),
        },
        lacks(_NAME, "see --advantage_estimator for the estimators that it has"),
    ),
    "correction": choice(
        {
            "none": fixed(f"leave out {_MODE}"),
            "tis_token": (Spelled(_MODE, "token_truncate"),),
            "tis_sequence": (
                Spelled(_MODE, "sequence_truncate", "takes the geometric mean, not the product"),
            ),
        },
        lacks(_NAME, f"see {_MODE} for the corrections that it has"),
    ),
    "correction_cap": same("--rollout_importance_sampling_threshold"),
    "old_logprobs": choice(
        {"recompute": fixed("ms-swift always takes old log-probabilities from its own model")},
        lacks(_NAME, "old log-probabilities always come from its own model"),
    ),
    "dynamic_sampling": choice(
        {
            True: (Spelled("--dynamic_sample", "true"), Spelled("--max_resample_times", "3")),
            False: (Spelled("--dynamic_sample", "false"),),
        },
        lacks(_NAME, "use --dynamic_sample"),
    ),
    "overlong": choice(
        {
            "none": (Spelled("--overlong_filter", "false"),),
            "mask": (Spelled("--overlong_filter", "true"),),
            "soft-punishment": _soft_overlong,
        },
        lacks(_NAME, "use --overlong_filter or the reward soft_overlong"),
    ),
    "overlong_buffer": same("--soft_cache_length"),
    "kl_coefficient": same("--beta"),
    "entropy_coefficient": lacks(_NAME, "raise --epsilon_high or --temperature instead"),
    "learning_rate": same("--learning_rate"),
    "temperature": same("--temperature"),
    "group_size": same("--num_generations"),
    "prompts_per_batch": _prompts,
    "updates_per_batch": same(
        "--num_iterations", "while steps_per_generation equals gradient_accumulation_steps"
    ),
    "max_length": same("--max_completion_length"),
    "routing_replay": choice(
        {
            "none": (Spelled("--router_replay_mode", "disabled"),),
            "R2": (Spelled("--router_replay_mode", "R2", _MEGATRON),),
            "R3": (Spelled("--router_replay_mode", "R3", f"{_MEGATRON}, vLLM 0.14 or newer"),),
        },
        lacks(_NAME, "see --router_replay_mode"),
    ),
    "sampler_sync_every": fixed(
        "weights are synced before every generation; --async_generate samples one step behind"
    ),
}

ENGINES: Table = {
    "sampler_dtype": same("--torch_dtype", "of both sides"),
    "learner_dtype": same("--torch_dtype", "of both sides"),
    "float32_head": lacks(_NAME, "vLLM's head computes in --torch_dtype"),
    "sampler_tensor_parallel": same("--vllm_tensor_parallel_size"),
    "unquantised_sampler": fixed("leave out --vllm_quantization"),
    "unquantised_cache": always(Spelled("--vllm_engine_kwargs", '\'{"kv_cache_dtype": "auto"}\'')),
    "whole_distribution": always(Spelled("--top_p", "1.0"), Spelled("--top_k", "-1")),
    "processed_logprobs": fixed("ms-swift always asks vLLM for processed log-probabilities"),
    "no_prefix_cache": always(Spelled("--vllm_enable_prefix_caching", "false")),
    "balanced_routers": same("--router_aux_loss_coef", "megatron rlhf: --moe_aux_loss_coeff"),
}

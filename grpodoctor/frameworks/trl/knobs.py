"""TRL's `GRPOTrainer`: arguments of `GRPOConfig`, checked against 1.10 and 1.16."""

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

_NO_AGGREGATION = lacks("TRL", 'use loss_type="dapo", the mean over all tokens of the batch')
_NO_CORRECTION = lacks("TRL", 'use vllm_importance_sampling_mode="token_truncate"')
_VLLM = "takes effect with use_vllm=True only"


def _truncated(mode: str) -> tuple[Spelled, ...]:
    return (
        Spelled("vllm_importance_sampling_correction", "True", _VLLM),
        Spelled("vllm_importance_sampling_mode", f'"{mode}"'),
    )


def _soft_overlong(_: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    limit = known(knobs, "max_length", "<max_completion_length>")
    buffer = known(knobs, "overlong_buffer", "<a fifth of it>")
    call = f"get_soft_overlong_punishment(max_completion_len={limit}, soft_punish_cache={buffer})"
    return (Spelled("reward_funcs", f"[..., {call}]", "import it from trl.rewards"),)


def _prompts(setting: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    return (times("generation_batch_size", "group_size", setting, knobs, "counts completions"),)


TABLE: Table = {
    "loss": choice(
        {
            "ppo_clip": (Spelled("importance_sampling_level", '"token"'),),
            "gspo": (
                Spelled(
                    "importance_sampling_level", '"sequence"', 'needs loss_type="grpo" beside it'
                ),
            ),
        },
        lacks("TRL", "see loss_type for the variants that it has"),
    ),
    "clip_low": same("epsilon"),
    "clip_high": same("epsilon_high"),
    "aggregation": choice(
        {
            "sequence-mean": (Spelled("loss_type", '"grpo"'),),
            "token-mean": (Spelled("loss_type", '"dapo"'),),
            "constant": (
                Spelled(
                    "loss_type",
                    '"dr_grpo"',
                    'the denominator alone: Dr. GRPO needs scale_rewards="none" as well',
                ),
            ),
        },
        _NO_AGGREGATION,
    ),
    "advantage": choice(
        {
            "group": (Spelled("scale_rewards", '"group"'),),
            "centred": (Spelled("scale_rewards", '"none"'),),
        },
        lacks("TRL", 'use scale_rewards="group", "batch" or "none"'),
    ),
    "correction": choice(
        {
            "none": (Spelled("vllm_importance_sampling_correction", "False"),),
            "tis_token": _truncated("token_truncate"),
            "tis_sequence": _truncated("sequence_truncate"),
        },
        _NO_CORRECTION,
    ),
    "correction_cap": same(
        "vllm_importance_sampling_clip_max", "vllm_importance_sampling_cap in TRL 0.23 to 0.25"
    ),
    "old_logprobs": choice(
        {"recompute": fixed("TRL always takes old log-probabilities from its own model")},
        lacks("TRL", "old log-probabilities always come from its own model"),
    ),
    "dynamic_sampling": choice(
        {False: fixed("TRL never resamples groups")},
        lacks(
            "TRL",
            "drop prompts that are always or never solved from the dataset, or use the "
            "experimental GRPOWithReplayBufferTrainer",
        ),
    ),
    "overlong": choice(
        {
            "none": (Spelled("mask_truncated_completions", "False"),),
            "mask": (Spelled("mask_truncated_completions", "True"),),
            "soft-punishment": _soft_overlong,
        },
        lacks("TRL", "use mask_truncated_completions=True"),
    ),
    "overlong_buffer": same("soft_punish_cache", "an argument of get_soft_overlong_punishment"),
    "kl_coefficient": same(
        "beta", "from 0 it takes a restart, since the reference model is loaded at the start"
    ),
    "entropy_coefficient": same("entropy_coef", "recent versions only"),
    "learning_rate": same("learning_rate"),
    "temperature": same("temperature"),
    "group_size": same("num_generations"),
    "prompts_per_batch": _prompts,
    "updates_per_batch": same(
        "num_iterations", "while steps_per_generation equals gradient_accumulation_steps"
    ),
    "max_length": same("max_completion_length"),
    "routing_replay": choice(
        {"none": fixed("TRL never replays any routing")},
        lacks("TRL", 'a ratio of whole responses needs none: importance_sampling_level="sequence"'),
    ),
    "sampler_sync_every": fixed("TRL syncs the weights before every generation"),
}


_SERVER = "trl vllm-serve"

ENGINES: Table = {
    "sampler_dtype": same(
        f"{_SERVER} --dtype", 'vllm_mode="colocate" takes the dtype of the checkpoint'
    ),
    "learner_dtype": choice(
        {
            "float32": (Spelled("bf16", "False"), Spelled("fp16", "False")),
            "bfloat16": (Spelled("bf16", "True"),),
            "float16": (Spelled("fp16", "True"), Spelled("bf16", "False")),
        },
        lacks("TRL", "use bf16=True or fp16=True"),
    ),
    "float32_head": lacks("TRL", "vLLM's head computes in the model's dtype"),
    "sampler_tensor_parallel": same(
        "vllm_tensor_parallel_size", f"of a server: {_SERVER} --tensor_parallel_size"
    ),
    "unquantised_sampler": fixed(
        "TRL quantises the sampler where the model is: load it without quantization_config"
    ),
    "unquantised_cache": always(
        Spelled(f"{_SERVER} --kv_cache_dtype", "auto", "colocated it is always so")
    ),
    "whole_distribution": always(
        Spelled("top_p", "1.0"), Spelled("top_k", "0"), Spelled("min_p", "None")
    ),
    "processed_logprobs": fixed("TRL always asks vLLM for processed log-probabilities"),
    "no_prefix_cache": always(Spelled(f"{_SERVER} --enable_prefix_caching", "False")),
    "balanced_routers": same("router_aux_loss_coef"),
}

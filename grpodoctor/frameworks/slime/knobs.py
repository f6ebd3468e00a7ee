"""slime: command-line flags, checked against the main branch after v0.3.1."""

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
    written,
)
from grpodoctor.vocabulary.knobs import Setting

_NAME = "slime"
_FILTER = "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std"
_REDUCER = "write one and name it with --custom-pg-loss-reducer-function-path"
_REWARD = "add it to your own reward function (--custom-rm-path)"


def _kl(setting: Setting, _: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    if not setting:
        return (Spelled("", "", "leave out --use-kl-loss"),)
    return (
        Spelled("--use-kl-loss", ""),
        *same("--kl-loss-coef")(setting, {}),
        Spelled("--kl-loss-type", "low_var_kl", "the default k1 has no gradient in expectation"),
    )


TABLE: Table = {
    "loss": choice(
        {
            "ppo_clip": (Spelled("--advantage-estimator", "grpo"),),
            "gspo": (Spelled("--advantage-estimator", "gspo"),),
        },
        lacks(_NAME, "see --advantage-estimator for the variants that it has"),
    ),
    "clip_low": same("--eps-clip"),
    "clip_high": same("--eps-clip-high"),
    "aggregation": choice(
        {
            "sequence-mean": fixed("leave out --calculate-per-token-loss"),
            "token-mean": (Spelled("--calculate-per-token-loss", ""),),
        },
        lacks(_NAME, _REDUCER),
    ),
    "advantage": choice(
        {
            "group": fixed("leave out --disable-grpo-std-normalization"),
            "centred": (Spelled("--disable-grpo-std-normalization", ""),),
        },
        lacks(_NAME, "see --advantage-estimator for the estimators that it has"),
    ),
    "correction": choice(
        {
            "none": fixed("leave out --use-tis"),
            "tis_token": (Spelled("--use-tis", ""),),
        },
        lacks(_NAME, "write one and name it with --custom-tis-function-path"),
    ),
    "correction_cap": same("--tis-clip"),
    "old_logprobs": choice(
        {
            "recompute": fixed("leave out --use-rollout-logprobs"),
            "sampler": (Spelled("--use-rollout-logprobs", ""),),
        },
        lacks(_NAME, "use --use-rollout-logprobs or leave it out"),
    ),
    "dynamic_sampling": choice(
        {
            True: (
                Spelled(
                    "--dynamic-sampling-filter-path",
                    _FILTER,
                    "raise --over-sampling-batch-size too, so that the batch can be filled",
                ),
            ),
            False: fixed("leave out --dynamic-sampling-filter-path"),
        },
        lacks(_NAME, "use --dynamic-sampling-filter-path"),
    ),
    "overlong": choice({"none": fixed("slime does nothing by itself")}, lacks(_NAME, _REWARD)),
    "overlong_buffer": lacks(_NAME, _REWARD),
    "kl_coefficient": _kl,
    "entropy_coefficient": same("--entropy-coef"),
    "learning_rate": same("--lr"),
    "temperature": same("--rollout-temperature"),
    "group_size": same("--n-samples-per-prompt"),
    "prompts_per_batch": same("--rollout-batch-size"),
    "updates_per_batch": same("--num-steps-per-rollout"),
    "max_length": same("--rollout-max-response-len"),
    "routing_replay": choice(
        {
            "none": fixed("leave out --use-routing-replay and --use-rollout-routing-replay"),
            "R2": (Spelled("--use-routing-replay", ""),),
            "R3": (Spelled("--use-rollout-routing-replay", ""),),
        },
        lacks(_NAME, "use --use-routing-replay or --use-rollout-routing-replay"),
    ),
    "sampler_sync_every": same(
        "--update-weights-interval", "matters with train_async.py; train.py syncs at every step"
    ),
}

ENGINES: Table = {
    "sampler_dtype": same("--sglang-dtype", "--fp16 sets float16 on both sides"),
    "learner_dtype": choice(
        {
            "bfloat16": fixed("leave out --fp16"),
            "float16": (Spelled("--fp16", "", "of both sides"),),
        },
        lacks(_NAME, "Megatron computes in bfloat16, or in float16 with --fp16"),
    ),
    "float32_head": always(Spelled("--sglang-enable-fp32-lm-head", "")),
    "sampler_tensor_parallel": same("--rollout-num-gpus-per-engine"),
    "unquantised_sampler": fixed("give --hf-checkpoint a checkpoint that is not quantised"),
    "unquantised_cache": always(Spelled("--sglang-kv-cache-dtype", "auto")),
    "whole_distribution": always(
        Spelled("--rollout-top-p", "1.0"), Spelled("--rollout-top-k", "-1")
    ),
    "processed_logprobs": fixed("SGLang gives processed log-probabilities by default"),
    "no_prefix_cache": always(Spelled("--sglang-disable-radix-cache", "")),
    "balanced_routers": lambda setting, _: (
        Spelled("--moe-router-load-balancing-type", "aux_loss"),
        Spelled("--moe-aux-loss-coeff", written(setting)),
    ),
}

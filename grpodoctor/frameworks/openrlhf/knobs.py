"""OpenRLHF: dotted command-line flags, checked against v0.11 (flat names before v0.10.2)."""

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

_IS = "--algo.advantage.is_correction"
_NO_AGGREGATION = lacks("OpenRLHF", "the loss is always averaged over all tokens")


def _clip(_: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    bounds = f"{known(knobs, 'clip_low', '0.2')} {known(knobs, 'clip_high', '0.2')}"
    return (Spelled("--actor.eps_clip_low_high", bounds, "low and high, 0.2 where not known"),)


def _soft_overlong(_: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    buffer = known(knobs, "overlong_buffer", "<a fifth of the limit>")
    return (
        Spelled("--reward.overlong_buffer_len", buffer),
        Spelled("--reward.overlong_penalty_factor", "1"),
    )


def _cap(setting: Setting, _: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    (cap,) = same(f"{_IS}_threshold")(setting, {})
    return (Spelled(cap.key, f"0 {cap.value}", "lower and upper bound; TIS has no lower one"),)


def _updates(setting: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    over = ("prompts_per_batch", "group_size")
    return (quotient("--train.batch_size", over, setting, knobs, "counts responses"),)


TABLE: Table = {
    "loss": choice(
        {
            "ppo_clip": (Spelled("--actor.policy_loss_type", "ppo"),),
            "gspo": (Spelled("--actor.policy_loss_type", "gspo"),),
        },
        lacks("OpenRLHF", "see --actor.policy_loss_type for the variants that it has"),
    ),
    "clip_low": _clip,
    "clip_high": _clip,
    "aggregation": choice(
        {"token-mean": fixed("OpenRLHF always averages over all tokens")}, _NO_AGGREGATION
    ),
    "advantage": choice(
        {
            "group": (Spelled("--algo.advantage.estimator", "group_norm"),),
            "centred": (
                Spelled(
                    "--algo.advantage.estimator",
                    "dr_grpo",
                    "drops the standard deviation; the denominator stays the token mean",
                ),
            ),
        },
        lacks("OpenRLHF", "see --algo.advantage.estimator for the estimators that it has"),
    ),
    "correction": choice(
        {
            "none": fixed(f"leave out {_IS}_enable"),
            "tis_token": (Spelled(f"{_IS}_enable", ""), Spelled(f"{_IS}_type", "tis")),
        },
        lacks("OpenRLHF", f"use {_IS}_type tis, which truncates per token"),
    ),
    "correction_cap": _cap,
    "old_logprobs": choice(
        {"recompute": fixed("OpenRLHF always recomputes them with the actor")},
        lacks("OpenRLHF", "old log-probabilities always come from the actor"),
    ),
    "dynamic_sampling": choice(
        {
            True: (
                Spelled("--algo.dynamic_filtering_enable", ""),
                Spelled("--algo.dynamic_filtering_range", "0 1", "needs scores in 0..1"),
            ),
            False: fixed("leave out --algo.dynamic_filtering_enable"),
        },
        lacks("OpenRLHF", "use --algo.dynamic_filtering_enable"),
    ),
    "overlong": choice(
        {
            "none": fixed("leave out --reward.overlong_buffer_len"),
            "mask": lacks(
                "OpenRLHF", "no loss mask for truncated responses; use the soft punishment instead"
            ),
            "soft-punishment": _soft_overlong,
        },
        lacks("OpenRLHF", "use --reward.overlong_buffer_len"),
    ),
    "overlong_buffer": same("--reward.overlong_buffer_len"),
    "kl_coefficient": same(
        "--algo.kl.init_coef", "in the reward; --algo.kl.use_loss moves it into the loss"
    ),
    "entropy_coefficient": same("--actor.entropy_coef"),
    "learning_rate": same("--actor.adam.lr"),
    "temperature": same("--rollout.temperature"),
    "group_size": same("--rollout.n_samples_per_prompt"),
    "prompts_per_batch": same("--rollout.batch_size"),
    "updates_per_batch": _updates,
    "max_length": same("--rollout.max_new_tokens"),
    "routing_replay": choice(
        {"none": fixed("OpenRLHF never replays any routing")},
        lacks("OpenRLHF", "a ratio of whole responses needs none: --actor.policy_loss_type gspo"),
    ),
    "sampler_sync_every": fixed(
        "weights are synced before every rollout; with asynchronous training keep "
        "--train.async_queue_size at 1"
    ),
}

ENGINES: Table = {
    "sampler_dtype": choice(
        {"bfloat16": fixed("OpenRLHF always samples in bfloat16")},
        lacks("OpenRLHF", "vLLM's dtype is bfloat16, in openrlhf/trainer/ray/vllm_engine.py"),
    ),
    "learner_dtype": choice(
        {
            "bfloat16": (Spelled("--ds.param_dtype", "bf16"),),
            "float16": (Spelled("--ds.param_dtype", "fp16"),),
        },
        lacks("OpenRLHF", "--ds.param_dtype takes bf16 or fp16"),
    ),
    "float32_head": lacks("OpenRLHF", "vLLM's head computes in bfloat16"),
    "sampler_tensor_parallel": same("--vllm.tensor_parallel_size"),
    "unquantised_sampler": fixed(
        "OpenRLHF quantises no sampler: name a checkpoint that is not quantised"
    ),
    "unquantised_cache": fixed("OpenRLHF never quantises the cache"),
    "whole_distribution": always(Spelled("--rollout.top_p", "1.0")),
    "processed_logprobs": always(
        Spelled(
            f"{_IS}_enable", "", "asks vLLM for processed log-probabilities, and weighs by them"
        )
    ),
    "no_prefix_cache": fixed("leave out --vllm.enable_prefix_caching"),
    "balanced_routers": same("--actor.aux_loss_coef"),
}

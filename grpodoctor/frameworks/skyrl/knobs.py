"""SkyRL: overrides of its configuration, checked against the main branch of August 2026."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.knob_spelling import (
    Spelled,
    Table,
    always,
    choice,
    fixed,
    lacks,
    quotient,
    same,
    short_dtype,
    written,
)
from grpodoctor.vocabulary.knobs import Setting

_NAME = "SkyRL"
_ALGORITHM = "trainer.algorithm"
_OFF_POLICY = f"{_ALGORITHM}.off_policy_correction"
_MASK_ONLY = "use generator.apply_overlong_filtering=true, or shape your own reward"


def _reduction(mode: str, note: str = "") -> tuple[Spelled, ...]:
    return (Spelled(f"{_ALGORITHM}.loss_reduction", mode, note),)


def _cap(setting: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    level = "sequence" if knobs.get("correction") == "tis_sequence" else "token"
    return same(f"{_OFF_POLICY}.{level}_tis_ratio_clip_high")(setting, knobs)


def _kl(setting: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    if not setting:
        return (Spelled(f"{_ALGORITHM}.use_kl_loss", "false"),)
    used = Spelled(f"{_ALGORITHM}.use_kl_loss", "true")
    return (used, *same(f"{_ALGORITHM}.kl_loss_coef")(setting, knobs))


def _entropy(setting: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    if not setting:
        return (Spelled(f"{_ALGORITHM}.use_entropy_loss", "false"),)
    used = Spelled(f"{_ALGORITHM}.use_entropy_loss", "true")
    return (used, *same(f"{_ALGORITHM}.entropy_loss_coef")(setting, knobs))


def _updates(setting: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    over = ("prompts_per_batch",)
    return (quotient("trainer.policy_mini_batch_size", over, setting, knobs, "counts prompts"),)


def _replay(switch: str) -> tuple[Spelled, ...]:
    return (
        Spelled("trainer.policy.megatron_config.moe_enable_routing_replay", switch),
        Spelled("generator.inference_engine.enable_return_routed_experts", switch),
    )


TABLE: Table = {
    "loss": choice(
        {
            "ppo_clip": (Spelled(f"{_ALGORITHM}.policy_loss_type", "regular"),),
            "gspo": (Spelled(f"{_ALGORITHM}.policy_loss_type", "gspo"),),
        },
        lacks(_NAME, f"see {_ALGORITHM}.policy_loss_type for the variants that it has"),
    ),
    "clip_low": same(f"{_ALGORITHM}.eps_clip_low"),
    "clip_high": same(f"{_ALGORITHM}.eps_clip_high"),
    "aggregation": choice(
        {
            "sequence-mean": _reduction("sequence_mean"),
            "token-mean": _reduction("token_mean"),
            "prompt-mean": _reduction("prompt_mean", "check that your version has it"),
            "constant": _reduction("seq_mean_token_sum_norm", "divides by max_seq_len"),
        },
        lacks(_NAME, f"see {_ALGORITHM}.loss_reduction for the denominators that it has"),
    ),
    "advantage": choice(
        {
            "group": (Spelled(f"{_ALGORITHM}.grpo_norm_by_std", "true"),),
            "centred": (Spelled(f"{_ALGORITHM}.grpo_norm_by_std", "false"),),
        },
        lacks(_NAME, f"see {_ALGORITHM}.advantage_estimator for the estimators that it has"),
    ),
    "correction": choice(
        {
            "none": (Spelled(f"{_OFF_POLICY}.tis_ratio_type", "null"),),
            "tis_token": (Spelled(f"{_OFF_POLICY}.tis_ratio_type", "token"),),
            "tis_sequence": (Spelled(f"{_OFF_POLICY}.tis_ratio_type", "sequence"),),
        },
        lacks(_NAME, f"see {_OFF_POLICY} for the corrections that it has"),
    ),
    "correction_cap": _cap,
    "old_logprobs": choice(
        {"recompute": fixed("the regular loss always recomputes them with the policy")},
        lacks(_NAME, "policy_loss_type=rollout_is is its loss on the sampler's probabilities"),
    ),
    "dynamic_sampling": choice(
        {
            True: (Spelled(f"{_ALGORITHM}.dynamic_sampling.type", "filter"),),
            False: (Spelled(f"{_ALGORITHM}.dynamic_sampling.type", "null"),),
        },
        lacks(_NAME, f"use {_ALGORITHM}.dynamic_sampling.type"),
    ),
    "overlong": choice(
        {
            "none": (Spelled("generator.apply_overlong_filtering", "false"),),
            "mask": (Spelled("generator.apply_overlong_filtering", "true"),),
        },
        lacks(_NAME, _MASK_ONLY),
    ),
    "overlong_buffer": lacks(_NAME, _MASK_ONLY),
    "kl_coefficient": _kl,
    "entropy_coefficient": _entropy,
    "learning_rate": same("trainer.policy.optimizer_config.lr"),
    "temperature": same("generator.sampling_params.temperature"),
    "group_size": same("generator.n_samples_per_prompt"),
    "prompts_per_batch": same("trainer.train_batch_size"),
    "updates_per_batch": _updates,
    "max_length": same("generator.sampling_params.max_generate_length"),
    "routing_replay": choice(
        {"none": _replay("false"), "R3": _replay("true")},
        lacks(_NAME, "moe_enable_routing_replay replays the sampler's routing, R3"),
    ),
    "sampler_sync_every": fixed(
        "weights are synced at every step; with fully asynchronous training bound staleness with "
        "fully_async.max_staleness_steps"
    ),
}

_ENGINE = "generator.inference_engine"
_MEGATRON = "trainer.policy.megatron_config.transformer_config_kwargs"
_SAMPLING = "generator.sampling_params"

ENGINES: Table = {
    "sampler_dtype": same(f"{_ENGINE}.model_dtype"),
    "learner_dtype": short_dtype("trainer.policy.fsdp_config.mixed_precision.param_dtype"),
    "float32_head": lacks(_NAME, "vLLM's head computes in the model's dtype"),
    "sampler_tensor_parallel": same(f"{_ENGINE}.tensor_parallel_size"),
    "unquantised_sampler": fixed(
        f"leave out {_ENGINE}.engine_init_kwargs.quantization, and serve what is not quantised"
    ),
    "unquantised_cache": always(Spelled(f"{_ENGINE}.engine_init_kwargs.kv_cache_dtype", "auto")),
    "whole_distribution": always(
        Spelled(f"{_SAMPLING}.top_p", "1.0"),
        Spelled(f"{_SAMPLING}.top_k", "-1"),
        Spelled(f"{_SAMPLING}.min_p", "0.0"),
    ),
    "processed_logprobs": always(
        Spelled(f"{_ENGINE}.engine_init_kwargs.logprobs_mode", "processed_logprobs")
    ),
    "no_prefix_cache": always(Spelled(f"{_ENGINE}.enable_prefix_caching", "false")),
    "balanced_routers": lambda setting, _: (
        Spelled(f"{_MEGATRON}.moe_router_load_balancing_type", "aux_loss"),
        Spelled(f"{_MEGATRON}.moe_aux_loss_coeff", written(setting)),
    ),
}

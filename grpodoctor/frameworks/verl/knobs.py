"""verl: Hydra overrides of its main configuration, checked against v0.9."""

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
    short_dtype,
    written,
)
from grpodoctor.vocabulary.knobs import Setting

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"
_CORRECTION = "algorithm.rollout_correction"
_BUFFER = "+reward.reward_kwargs.overlong_buffer_cfg"


_GSPO = (Spelled(f"{_ACTOR}.policy_loss.loss_mode", "gspo", "in the form of gspo_token"),)


def _aggregation(mode: str) -> tuple[Spelled, ...]:
    return (Spelled(f"{_ACTOR}.loss_agg_mode", mode),)


def _constant(_: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    limit = known(knobs, "max_length", "<data.max_response_length>")
    width = "without it the padded width of the batch divides, which is not constant"
    return (
        *_aggregation("seq-mean-token-sum-norm"),
        Spelled(f"{_ACTOR}.loss_scale_factor", limit, width),
    )


def _advantage(by_std: str) -> tuple[Spelled, ...]:
    return (
        Spelled("algorithm.adv_estimator", "grpo"),
        Spelled("algorithm.norm_adv_by_std_in_grpo", by_std),
    )


def _truncated(level: str) -> tuple[Spelled, ...]:
    return (
        Spelled(f"{_CORRECTION}.rollout_is", level, "algorithm.rollout_is in v0.6.0"),
        Spelled(f"{_ROLLOUT}.calculate_log_probs", "True"),
    )


def _replay(mode: str, of_rollout: str) -> tuple[Spelled, ...]:
    return (
        Spelled(
            f"{_ACTOR}.megatron.router_replay.mode",
            mode,
            "actor.veomni with VeOmni, actor.router_replay up to v0.7; FSDP cannot",
        ),
        Spelled(f"{_ROLLOUT}.enable_rollout_routing_replay", of_rollout),
    )


def _soft_overlong(_: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    buffer = known(knobs, "overlong_buffer", "<a fifth of the limit>")
    return (
        Spelled("reward.reward_manager.name", "dapo"),
        Spelled(f"{_BUFFER}.enable", "True", "under reward_model in older versions"),
        Spelled(f"{_BUFFER}.len", buffer),
        Spelled(f"{_BUFFER}.penalty_factor", "1.0"),
    )


def _kl(setting: Setting, _: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    if not setting:
        return (Spelled(f"{_ACTOR}.use_kl_loss", "False"),)
    used = Spelled(f"{_ACTOR}.use_kl_loss", "True", "loads the reference model")
    return (used, *same(f"{_ACTOR}.kl_loss_coef")(setting, {}))


def _updates(setting: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    over = ("prompts_per_batch",)
    return (quotient(f"{_ACTOR}.ppo_mini_batch_size", over, setting, knobs, "counts prompts"),)


TABLE: Table = {
    "loss": choice(
        {
            "ppo_clip": (Spelled(f"{_ACTOR}.policy_loss.loss_mode", "vanilla"),),
            "gspo": _GSPO,
            "gspo_token": _GSPO,
        },
        lacks("verl", f"see {_ACTOR}.policy_loss.loss_mode for the variants that it has"),
    ),
    "clip_low": same(f"{_ACTOR}.clip_ratio_low"),
    "clip_high": same(f"{_ACTOR}.clip_ratio_high"),
    "aggregation": choice(
        {
            "sequence-mean": _aggregation("seq-mean-token-mean"),
            "token-mean": _aggregation("token-mean"),
            "constant": _constant,
        },
        lacks("verl", "use loss_agg_mode=token-mean, the mean over all tokens of the batch"),
    ),
    "advantage": choice(
        {"group": _advantage("True"), "centred": _advantage("False")},
        lacks("verl", "see algorithm.adv_estimator for the estimators that it has"),
    ),
    "correction": choice(
        {
            "none": (Spelled(f"{_CORRECTION}.rollout_is", "null"),),
            "tis_token": _truncated("token"),
            "tis_sequence": _truncated("sequence"),
        },
        lacks("verl", f"see {_CORRECTION} for the corrections that it has"),
    ),
    "correction_cap": same(f"{_CORRECTION}.rollout_is_threshold"),
    "old_logprobs": choice(
        {
            "recompute": (Spelled(f"{_CORRECTION}.bypass_mode", "False"),),
            "sampler": (Spelled(f"{_CORRECTION}.bypass_mode", "True"),),
        },
        lacks("verl", f"use {_CORRECTION}.bypass_mode"),
    ),
    "dynamic_sampling": choice(
        {
            True: (
                Spelled(
                    "algorithm.filter_groups.enable",
                    "True",
                    "check that your trainer reads it: the DAPO recipe of verl-recipe does",
                ),
                Spelled("algorithm.filter_groups.metric", "acc"),
            ),
            False: (Spelled("algorithm.filter_groups.enable", "False"),),
        },
        lacks("verl", "use algorithm.filter_groups"),
    ),
    "overlong": choice(
        {
            "none": (Spelled(f"{_BUFFER}.enable", "False"),),
            "mask": lacks(
                "verl", "no loss mask for truncated responses; use the soft punishment instead"
            ),
            "soft-punishment": _soft_overlong,
        },
        lacks("verl", "use the reward manager dapo"),
    ),
    "overlong_buffer": same(f"{_BUFFER}.len"),
    "kl_coefficient": _kl,
    "entropy_coefficient": same(f"{_ACTOR}.entropy_coeff"),
    "learning_rate": same(f"{_ACTOR}.optim.lr"),
    "temperature": same(f"{_ROLLOUT}.temperature"),
    "group_size": same(f"{_ROLLOUT}.n"),
    "prompts_per_batch": same("data.train_batch_size"),
    "updates_per_batch": _updates,
    "max_length": same("data.max_response_length"),
    "routing_replay": choice(
        {
            "none": _replay("disabled", "False"),
            "R2": _replay("R2", "False"),
            "R3": _replay("R3", "True"),
        },
        lacks("verl", f"see {_ACTOR}.megatron.router_replay.mode"),
    ),
    "sampler_sync_every": fixed(
        "the synchronous trainer syncs before every rollout; for the asynchronous one bound the "
        "staleness with trainer.v1.sampler.max_off_policy_threshold"
    ),
}

_MEGATRON = f"+{_ACTOR}.megatron.override_transformer_config"

ENGINES: Table = {
    "sampler_dtype": same(f"{_ROLLOUT}.dtype"),
    "learner_dtype": short_dtype(
        f"+{_ACTOR}.fsdp_config.mixed_precision.param_dtype",
        "with Megatron actor.megatron.dtype, which has no float32",
    ),
    "float32_head": always(
        Spelled(f"+{_ROLLOUT}.engine_kwargs.sglang.enable_fp32_lm_head", "True", "SGLang alone")
    ),
    "sampler_tensor_parallel": same(f"{_ROLLOUT}.tensor_model_parallel_size"),
    "unquantised_sampler": always(Spelled(f"{_ROLLOUT}.quantization", "null")),
    "unquantised_cache": always(
        Spelled(f"+{_ROLLOUT}.engine_kwargs.vllm.kv_cache_dtype", "auto", "or .sglang")
    ),
    "whole_distribution": always(
        Spelled(f"{_ROLLOUT}.top_p", "1.0"), Spelled(f"{_ROLLOUT}.top_k", "-1")
    ),
    "processed_logprobs": always(Spelled(f"{_ROLLOUT}.logprobs_mode", "processed_logprobs")),
    "no_prefix_cache": always(Spelled(f"{_ROLLOUT}.enable_prefix_caching", "False")),
    "balanced_routers": lambda setting, _: (
        Spelled(f"{_MEGATRON}.moe_router_load_balancing_type", "aux_loss", "Megatron alone"),
        Spelled(f"{_MEGATRON}.moe_aux_loss_coeff", written(setting)),
    ),
}

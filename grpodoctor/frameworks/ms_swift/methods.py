"""Published methods and facts about the configuration in ms-swift's flags, checked against 4.6."""

from __future__ import annotations

from grpodoctor.frameworks.adam_settings import adam, default_adam
from grpodoctor.frameworks.combined_settings import count_only
from grpodoctor.frameworks.knob_mapping import KnobMapping, Reader
from grpodoctor.frameworks.sampler_precision import sampler_quantized
from grpodoctor.frameworks.trl.methods import read_responses, read_sampler_apart
from grpodoctor.frameworks.written_settings import (
    NothingToSet,
    Option,
    SettingLine,
    Settings,
    Unsupported,
    WithNote,
    format_setting,
)
from grpodoctor.vocabulary.knobs import Setting

_MODE = "rollout_importance_sampling_mode"
_GEOMETRIC = "uses the geometric mean, not the product"
_OWN_DENOMINATORS = {"cispo": "token-mean", "sapo": "sequence-mean"}
_LOSS_TYPES = {"sequence-mean": "grpo", "token-mean": "dapo", "constant": "dr_grpo"}


def _aggregation(
    setting: Setting, knobs: Settings
) -> tuple[SettingLine, ...] | NothingToSet | Unsupported:
    loss = knobs.get("loss")
    if own := _OWN_DENOMINATORS.get(str(loss)):
        return NothingToSet(f"--loss_type {loss} has its own denominator, {own}")
    if setting not in _LOSS_TYPES:
        return Unsupported("use --loss_type dapo, the mean over all tokens of the batch")
    note = (
        "changes only the denominator; Dr. GRPO also requires --scale_rewards none"
        if setting == "constant"
        else ""
    )
    return (SettingLine("--loss_type", _LOSS_TYPES[str(setting)], note),)


def _clip_high(setting: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    if knobs.get("loss") == "cispo" and isinstance(setting, int | float):
        note = "the largest weight, not a distance from 1"
        return (SettingLine("--epsilon_high", format_setting(float(1 + setting)), note),)
    return (SettingLine("--epsilon_high", format_setting(setting)),)


def _read_correction(setting: Setting, _: Settings) -> Setting | None:
    names = {
        "token_truncate": "tis_token",
        "sequence_truncate": "tis_sequence",
        "token_mask": "mis_token",
        "sequence_mask": "mis_sequence",
    }
    return names.get(str(setting))


def _read_level(setting: Setting, settings: Settings) -> Setting | None:
    kind = settings.get("loss_type", "grpo")
    is_clipped = kind in ("grpo", "bnpo", "dr_grpo", "dapo")
    levels = {"sequence": "gspo", "sequence_token": "gspo_token"}
    return levels.get(str(setting)) if is_clipped else None


def _read_kl(*, in_reward: bool) -> Reader:
    def read(setting: Setting, settings: Settings) -> Setting | None:
        return setting if (settings.get("kl_in_reward") is True) == in_reward else 0.0

    return read


def _read_weight_cap(setting: Setting, settings: Settings) -> Setting | None:
    return setting if settings.get("loss_type") == "cispo" else None


def _read_response_ratio(setting: Setting, settings: Settings) -> Setting | None:
    return setting == "sequence" and settings.get("loss_type", "grpo") in ("dapo", "bnpo")


METHODS = (
    default_adam("adam_beta1", "adam_beta2", "adam_epsilon"),
    KnobMapping(
        "kl_estimator",
        values={"k3": NothingToSet("ms-swift always uses k3")},
        write=Unsupported("the estimator is always k3"),
    ),
    KnobMapping("no_kl_in_reward", "kl_in_reward", write=False),
    KnobMapping("kl_in_reward", "beta", enabled_by={"kl_in_reward": True}),
    KnobMapping(
        "loss",
        values={
            "cispo": {"loss_type": "cispo"},
            "sapo": {
                "loss_type": "sapo",
                "tau_pos": Option("tau_positive", 1.0),
                "tau_neg": Option("tau_negative", 1.05),
            },
        },
    ),
    KnobMapping("clip_high", write=_clip_high),
    KnobMapping(
        "aggregation",
        values=dict.fromkeys(_LOSS_TYPES, _aggregation),
        write=_aggregation,
        read={kind: name for name, kind in _LOSS_TYPES.items()},
    ),
    KnobMapping(
        "advantage",
        values={
            "reinforce_plus_plus_baseline": {"advantage_estimator": "reinforce_plus_plus"},
            "batch_std": "batch",
            "gdpo": "gdpo",
            "leave_one_out": {"advantage_estimator": "rloo"},
        },
    ),
    KnobMapping(
        "correction",
        values={
            "error_mask": {
                "off_policy_sequence_mask_delta": WithNote(
                    0.5, "masks only negative advantages, ms-swift's nearest measure"
                )
            },
            "mis_token": "token_mask",
            "mis_sequence": WithNote("sequence_mask", _GEOMETRIC),
        },
    ),
    KnobMapping("forking_tokens", "top_entropy_quantile"),
    KnobMapping(
        "drop_failed_rollouts",
        write=NothingToSet("return None as the reward of a failed rollout"),
    ),
    KnobMapping(
        "float32_weights", "torch_dtype", write="float32", note="with --bf16 true for the products"
    ),
    KnobMapping(
        "mask_tool_tokens",
        write=NothingToSet("return loss_mask from your scheduler; ms-swift masks tool results"),
    ),
    KnobMapping("no_repetition_penalty", "repetition_penalty", write=1.0),
    KnobMapping("pass_rate_filter", write=Unsupported("filter --dataset before the run")),
    KnobMapping(
        "repetition_penalty",
        write={"reward_funcs": "<yours> repetition", "repetition_max_penalty": "-1.0"},
    ),
    KnobMapping("router_loss", "router_aux_loss_coef", note="Megatron: --moe_aux_loss_coeff"),
    KnobMapping(
        "staleness_limit", write=NothingToSet("without --async_generate, samples are never stale")
    ),
)


def _read_rank(setting: Setting, settings: Settings) -> Setting | None:
    """The arguments contain a rank for any tuner; `tuner_type` was `train_type` before 4.0."""
    tuner = settings.get("tuner_type", settings.get("train_type", "lora"))
    if tuner == "full":
        return 0
    return setting if "lora" in str(tuner) else None


FACTS = (
    KnobMapping("weight_cap", "epsilon_high", read=_read_weight_cap),
    KnobMapping("loss", "importance_sampling_level", read=_read_level),
    KnobMapping("correction", _MODE, read=_read_correction),
    KnobMapping("top_p", "top_p"),
    KnobMapping("top_k", "top_k"),
    KnobMapping("repetition_penalty", "repetition_penalty"),
    KnobMapping("greedy_sampling", "temperature", read=lambda setting, _: setting == 0),
    KnobMapping("kl_in_loss", "beta", read=_read_kl(in_reward=False)),
    KnobMapping("kl_in_reward", "beta", read=_read_kl(in_reward=True)),
    KnobMapping(
        "sequence_ratio_weights_tokens", "importance_sampling_level", read=_read_response_ratio
    ),
    KnobMapping("lora_rank", "lora_rank", read=_read_rank, default=8),
    KnobMapping("responses_per_process", "per_device_train_batch_size", read=read_responses),
    KnobMapping("sampler_apart", "use_vllm", read=read_sampler_apart),
    KnobMapping("context_length", "vllm_max_model_len"),
    sampler_quantized("vllm_quantization"),
    KnobMapping("max_prompt_length", "max_length"),
    KnobMapping("total_steps", "max_steps", read=count_only),
    KnobMapping("epochs", "num_train_epochs"),
    KnobMapping("warmup_steps", "warmup_steps", read=count_only),
    KnobMapping("warmup_share", "warmup_ratio"),
    *adam("adam_beta1", "adam_beta2", "adam_epsilon"),
    KnobMapping("batch_responses", "generation_batch_size", read=count_only),
    KnobMapping("dual_clip", "delta"),
    KnobMapping("punishment_limit", "soft_max_length"),
    KnobMapping("overlong_buffer", "soft_cache_length"),
)

DEFAULTS: Settings = {
    "clip_low": 0.2,
    "clip_high": 0.2,
    "aggregation": "sequence-mean",
    "advantage": "group",
    "group_size": 8,
}
"""The defaults of ms-swift's GRPO arguments."""

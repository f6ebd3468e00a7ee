"""Published methods and facts about the configuration in NeMo RL's YAML, main after v0.7."""

from __future__ import annotations

from grpodoctor.frameworks.adam_settings import adam_betas, default_adam_betas
from grpodoctor.frameworks.adapter_rank import rank_if_enabled
from grpodoctor.frameworks.combined_settings import count_only, product_with
from grpodoctor.frameworks.knob_mapping import KnobMapping, Reader
from grpodoctor.frameworks.sampler_precision import sampler_quantized
from grpodoctor.frameworks.written_settings import (
    Lines,
    NothingToSet,
    SettingLine,
    Settings,
    Unsupported,
    format_setting,
)
from grpodoctor.vocabulary.knobs import Setting

_IS = "loss_fn.truncated_importance_sampling"
_GENERATION = "policy.generation"


def _correction(kind: str, low: float, high: float) -> Lines:
    return {
        "loss_fn.use_importance_sampling_correction": True,
        f"{_IS}_type": kind,
        f"{_IS}_ratio_min": low,
        f"{_IS}_ratio": high,
    }


def _cap(setting: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    bounds = {"icepop": "5", "geo_mask": "1.002"}
    value = bounds.get(str(knobs.get("correction")), format_setting(setting))
    return (SettingLine(f"{_IS}_ratio", value),)


def _read_kl(*, in_reward: bool) -> Reader:
    def read(setting: Setting, settings: Settings) -> Setting | None:
        is_in_reward = settings.get("loss_fn.use_kl_in_reward") is True
        return setting if is_in_reward == in_reward else 0.0

    return read


def _read_staleness(setting: Setting, settings: Settings) -> Setting | None:
    return setting if settings.get("grpo.async_grpo.enabled") is True else 0


METHODS = (
    default_adam_betas("policy.optimizer.kwargs.betas", {"policy.optimizer.kwargs.eps": 1e-8}),
    KnobMapping("kl_estimator", "loss_fn.reference_policy_kl_type"),
    KnobMapping("no_kl_in_reward", "loss_fn.use_kl_in_reward", write=False),
    KnobMapping(
        "kl_in_reward",
        "loss_fn.reference_policy_kl_penalty",
        enabled_by={"loss_fn.use_kl_in_reward": True, "loss_fn.reference_policy_kl_type": "k1"},
    ),
    KnobMapping(
        "overlong",
        values={
            "stop-properly": {
                "grpo.reward_shaping.enabled": True,
                "grpo.reward_shaping.stop_properly_penalty_coef": 0.0,
            }
        },
    ),
    KnobMapping(
        "loss",
        values={
            "cispo": {
                "loss_fn.use_cispo": True,
                "loss_fn.token_level_loss": True,
                "loss_fn.ratio_clip_c": "null",
            },
            "reinforce": {"loss_fn.disable_ppo_ratio": True},
        },
    ),
    KnobMapping(
        "advantage",
        values={
            "reinforce_plus_plus_baseline": {
                "grpo.adv_estimator.name": "reinforce_plus_plus",
                "grpo.adv_estimator.minus_baseline": True,
            },
            "leave_one_out": {
                "grpo.normalize_rewards": False,
                "grpo.use_leave_one_out_baseline": True,
            },
            "centred": {
                "grpo.normalize_rewards": False,
                "grpo.use_leave_one_out_baseline": False,
            },
        },
    ),
    KnobMapping(
        "correction",
        values={
            "error_mask": {"grpo.seq_logprob_error_threshold": 2.0},
            "icepop": _correction("icepop", 0.5, 5.0),
            "geo_mask": _correction("seq-mask-tis", 0.999, 1.002),
        },
    ),
    KnobMapping("correction_cap", write=_cap),
    KnobMapping(
        "drop_failed_rollouts",
        write=Unsupported("return a loss multiplier of 0 for them from your environment"),
    ),
    KnobMapping(
        "float32_weights", write=NothingToSet("NeMo RL keeps float32 weights and casts them")
    ),
    KnobMapping(
        "mask_tool_tokens",
        write=NothingToSet("NeMo RL trains on assistant tokens only; check your own environment"),
    ),
    KnobMapping("pass_rate_filter", write=Unsupported("filter the dataset before the run")),
    KnobMapping("repetition_penalty", write=Unsupported("add it in your own environment")),
    KnobMapping("router_loss", "policy.megatron_cfg.moe_router_load_balancing_type", write="none"),
    KnobMapping(
        "staleness_limit",
        "grpo.async_grpo.max_trajectory_age_steps",
        note="only in asynchronous training",
    ),
)

_ADAPTERS = ("dtensor_cfg.lora_cfg", "automodel_cfg.lora_cfg", "megatron_cfg.peft")
"""Sections of the policy's config that set adapters, one for each training backend."""

# Top-p and top-k are no facts: the learner keeps the same tokens (TrainingSamplingParams).
FACTS = (
    KnobMapping("greedy_sampling", f"{_GENERATION}.temperature", read=lambda value, _: value == 0),
    KnobMapping(
        "kl_in_reward", "loss_fn.reference_policy_kl_penalty", read=_read_kl(in_reward=True)
    ),
    KnobMapping(
        "kl_in_loss", "loss_fn.reference_policy_kl_penalty", read=_read_kl(in_reward=False)
    ),
    KnobMapping(
        # NeMo RL multiplies each estimate by the ratio, so every estimator has a gradient.
        "kl_estimator",
        "loss_fn.reference_policy_kl_type",
        read={"k2": "k2", "k3": "k3"},
    ),
    KnobMapping(
        "reference_loaded",
        "grpo.skip_reference_policy_logprobs_calculation",
        read={True: False, False: True},
    ),
    KnobMapping(
        "batch_responses",
        "grpo.num_prompts_per_step",
        read=product_with("grpo.num_generations_per_prompt"),
    ),
    KnobMapping("update_responses", "policy.train_global_batch_size", read=count_only),
    KnobMapping("learner_length", "policy.max_total_sequence_length", read=count_only),
    KnobMapping("total_steps", "grpo.max_num_steps", read=count_only),
    KnobMapping("epochs", "grpo.max_num_epochs"),
    KnobMapping("context_length", f"{_GENERATION}.vllm_cfg.max_model_len"),
    sampler_quantized(f"{_GENERATION}.vllm_cfg.precision"),
    KnobMapping(
        "staleness_limit", "grpo.async_grpo.max_trajectory_age_steps", read=_read_staleness
    ),
    KnobMapping("punishment_limit", "grpo.reward_shaping.max_response_length"),
    KnobMapping("overlong_buffer", "grpo.reward_shaping.overlong_buffer_length"),
    KnobMapping("dual_clip", "loss_fn.ratio_clip_c"),
    *adam_betas("policy.optimizer.kwargs.betas"),
    KnobMapping("adam_epsilon", "policy.optimizer.kwargs.eps"),
    KnobMapping(
        "lora_rank",
        "policy.dtensor_cfg.lora_cfg.dim",
        read=rank_if_enabled(
            {f"policy.{backend}.enabled": f"policy.{backend}.dim" for backend in _ADAPTERS}
        ),
        default=0,
    ),
)

DEFAULTS: Settings = {}
"""A config of NeMo RL contains every key."""

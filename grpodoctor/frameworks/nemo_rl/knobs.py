"""NeMo RL: keys of its YAML config, as overrides, checked against the main branch after v0.7."""

from __future__ import annotations

from grpodoctor.frameworks.knob_mapping import (
    KnobMapping,
    KnobTable,
    always,
    as_is,
    nothing_to_set,
    unsupported,
)
from grpodoctor.frameworks.nemo_rl.methods import DEFAULTS, FACTS, METHODS
from grpodoctor.frameworks.written_settings import (
    Lines,
    Quotient,
    SettingLine,
    Settings,
    Unsupported,
    WithNote,
    known_or,
    overlong_weight,
)
from grpodoctor.vocabulary.knobs import Setting

_SHAPING = "grpo.reward_shaping"
_GENERATION = "policy.generation"


def _soft_overlong(_: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    limit = f"<{_GENERATION}.max_new_tokens"
    return (
        SettingLine(f"{_SHAPING}.enabled", "true"),
        SettingLine(
            f"{_SHAPING}.overlong_buffer_length",
            known_or(knobs, "overlong_buffer", f"{limit} / 5>"),
        ),
        overlong_weight(f"{_SHAPING}.overlong_buffer_penalty", knobs),
        SettingLine(f"{_SHAPING}.max_response_length", known_or(knobs, "max_length", f"{limit}>")),
    )


def _unscaled(*, leave_one_out: bool) -> Lines:
    return {
        "grpo.normalize_rewards": False,
        "grpo.use_leave_one_out_baseline": leave_one_out,
    }


def _mask_and_soft_overlong(setting: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    return (SettingLine("grpo.overlong_filtering", "true"), *_soft_overlong(setting, knobs))


def _read_loss(setting: Setting, settings: Settings) -> Setting | None:
    if settings.get("loss_fn.use_cispo") is True:
        return "cispo"
    return "gspo" if setting is True else "ppo_clip"


_ESTIMATOR = "grpo.adv_estimator"


def _read_advantage(setting: Setting, settings: Settings) -> Setting | None:
    """The estimator; `opd` distills a teacher, whose log-ratios need no group."""
    estimator = settings.get(f"{_ESTIMATOR}.name", "grpo")
    if estimator != "grpo":
        return "gdpo" if estimator == "gdpo" else None
    if setting is True:
        return "group"
    return "leave_one_out" if settings.get("grpo.use_leave_one_out_baseline", True) else "centred"


_MAPPINGS = (
    KnobMapping("loss", "loss_fn.sequence_level_importance_ratios",
        values={"ppo_clip": {"loss_fn.use_cispo": False,
                             "loss_fn.sequence_level_importance_ratios": False},
                "gspo": {"loss_fn.use_cispo": False,
                         "loss_fn.sequence_level_importance_ratios": True}},
        read=_read_loss, write=Unsupported("see loss_fn for the available variants")),
    KnobMapping("clip_low", "loss_fn.ratio_clip_min"),
    KnobMapping("clip_high", "loss_fn.ratio_clip_max"),
    KnobMapping("aggregation", "loss_fn.token_level_loss",
        values={"sequence-mean": False, "token-mean": True},
        write=Unsupported("use loss_fn.token_level_loss=true, the mean over all tokens")),
    KnobMapping("advantage", "grpo.normalize_rewards", read=_read_advantage,
        other_keys=(f"{_ESTIMATOR}.name",),
        values={"group": True, "centred": _unscaled(leave_one_out=False),
                "leave_one_out": _unscaled(leave_one_out=True)},
        write=Unsupported("use grpo.normalize_rewards and grpo.use_leave_one_out_baseline")),
    KnobMapping("correction", "loss_fn.truncated_importance_sampling_type",
        values={"none": {"loss_fn.use_importance_sampling_correction": False},
                "tis_token": {"loss_fn.use_importance_sampling_correction": True,
                              "loss_fn.truncated_importance_sampling_type": "tis"}},
        read={"tis": "tis_token", "icepop": "icepop", "seq-mask-tis": "geo_mask"},
        write=Unsupported(
            "use loss_fn.truncated_importance_sampling_type=tis, which is per token")),
    KnobMapping("correction_cap", "loss_fn.truncated_importance_sampling_ratio"),
    always("old_logprobs", "recompute",
        "NeMo RL always recomputes old log-probabilities with the policy",
        "old log-probabilities always come from the policy"),
    KnobMapping("dynamic_sampling", "grpo.use_dynamic_sampling",
        values={True: {"grpo.use_dynamic_sampling": True,
                       "grpo.dynamic_sampling_max_gen_batches": 10}, False: False},
        read=as_is),
    KnobMapping("overlong", "grpo.overlong_filtering",
        values={"none": {"grpo.overlong_filtering": False, f"{_SHAPING}.enabled": False},
                "mask": True, "soft-punishment": _soft_overlong,
                "mask-and-soft-punishment": _mask_and_soft_overlong,
                "stop-properly": {f"{_SHAPING}.enabled": True,
                                  f"{_SHAPING}.stop_properly_penalty_coef": 0.0}},
        read={False: "none"}),
    KnobMapping("overlong_buffer", f"{_SHAPING}.overlong_buffer_length", reads=False),
    KnobMapping("kl_coefficient", "loss_fn.reference_policy_kl_penalty"),
    unsupported("entropy_coefficient", "add it in your own loss function"),
    KnobMapping("learning_rate", "policy.optimizer.kwargs.lr",
        note="with Megatron: policy.megatron_cfg.optimizer.lr"),
    KnobMapping("temperature", f"{_GENERATION}.temperature"),
    KnobMapping("group_size", "grpo.num_generations_per_prompt"),
    KnobMapping("prompts_per_batch", "grpo.num_prompts_per_step"),
    KnobMapping("updates_per_batch", "policy.train_global_batch_size", reads=False,
        write=Quotient(("prompts_per_batch", "group_size"), "counts responses")),
    KnobMapping("max_length", f"{_GENERATION}.max_new_tokens"),
    KnobMapping("routing_replay", "policy.router_replay.enabled", reads=False,
        values={"none": False, "R3": True},
        write=Unsupported("policy.router_replay replays the sampler's routing (R3)")),
    nothing_to_set("sampler_sync_every",
        "NeMo RL syncs the weights at every step; in asynchronous training limit staleness with "
        "grpo.async_grpo.max_trajectory_age_steps"),
)

_ENGINE_SETTINGS = (
    KnobMapping("sampler_dtype", f"{_GENERATION}.vllm_cfg.precision"),
    KnobMapping("learner_dtype", "policy.precision",
        note="also sets the sampler's precision unless that has its own setting"),
    unsupported("float32_head", f"vLLM computes the head in {_GENERATION}.vllm_cfg.precision"),
    KnobMapping("sampler_tensor_parallel", f"{_GENERATION}.vllm_cfg.tensor_parallel_size"),
    KnobMapping("unquantized_sampler", f"{_GENERATION}.vllm_cfg.precision",
        write="${policy.precision}"),
    KnobMapping("unquantized_cache", f"{_GENERATION}.vllm_cfg.kv_cache_dtype", write="auto"),
    KnobMapping("whole_distribution",
        write={f"{_GENERATION}.top_p": "1.0", f"{_GENERATION}.top_k": "null"}),
    nothing_to_set("one_temperature",
        "NeMo RL scores at policy.generation.temperature, as it samples"),
    KnobMapping("processed_logprobs", f"{_GENERATION}.vllm_cfg.logprobs_mode",
        write="processed_logprobs"),
    KnobMapping("no_prefix_cache", f"++{_GENERATION}.vllm_cfg.enable_prefix_caching", write=False),
    KnobMapping("small_micro_batch", "policy.train_micro_batch_size", write=1),
    KnobMapping("gradient_checkpointing", "policy.dtensor_cfg.activation_checkpointing",
        note="with Megatron: policy.megatron_cfg.activation_checkpointing"),
    KnobMapping("sampler_memory", f"{_GENERATION}.vllm_cfg.gpu_memory_utilization",
        write="<current value - 0.1>", note="if sampler and learner share the GPUs"),
    KnobMapping("balanced_routers", "policy.megatron_cfg.freeze_moe_router",
        write=WithNote(True, "NeMo RL has no auxiliary loss by default")),
)

KNOBS = KnobTable(
    title="NeMo RL",
    mappings=_MAPPINGS,
    engine_settings=_ENGINE_SETTINGS,
    methods=METHODS,
    facts=FACTS,
    defaults=DEFAULTS,
    checkpoint_interval="checkpointing.save_period",
)

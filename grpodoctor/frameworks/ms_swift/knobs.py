"""ms-swift: command-line flags of `swift rlhf --rlhf_type grpo`, checked against 4.6."""

from __future__ import annotations

from grpodoctor.frameworks.knob_mapping import (
    KnobMapping,
    KnobTable,
    always,
    as_is,
    nothing_to_set,
    unsupported,
    with_changes,
)
from grpodoctor.frameworks.ms_swift.methods import DEFAULTS, FACTS, METHODS
from grpodoctor.frameworks.trl.knobs import MAPPINGS, read_loss
from grpodoctor.frameworks.written_settings import (
    NothingToSet,
    SettingLine,
    Settings,
    Syntax,
    Unsupported,
    WithNote,
    format_setting,
    known_or,
)
from grpodoctor.vocabulary.knobs import Setting

_LEVEL = "importance_sampling_level"
_MODE = "rollout_importance_sampling_mode"
_TEACHERS = ("teacher_model", "teacher_model_server")
_SCALES = {"group": "group", "none": "centred", "batch": "batch_std", "gdpo": "gdpo"}
_ESTIMATORS = {"rloo": "leave_one_out", "reinforce_plus_plus": "reinforce_plus_plus_baseline"}
_MEGATRON = "for megatron rlhf with megatron-core 0.16 or later"


def _read_advantage(_: Setting, settings: Settings) -> Setting | None:
    """The estimator; with a teacher, whose KL needs no group, the config does not say."""
    if any(settings.get(key) for key in _TEACHERS):
        return None
    estimator = _ESTIMATORS.get(str(settings.get("advantage_estimator", "")))
    return estimator or _SCALES.get(str(settings.get("scale_rewards", "group")))


def _soft_overlong(_: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    limit = "<max_completion_length"
    return (
        SettingLine("--reward_funcs", "<yours> soft_overlong"),
        *(
            SettingLine("--reward_weights", f"<yours> {format_setting(knobs[name])}")
            for name in ("overlong_weight",)
            if name in knobs
        ),
        SettingLine("--soft_max_length", known_or(knobs, "max_length", f"{limit}>")),
        SettingLine("--soft_cache_length", known_or(knobs, "overlong_buffer", f"{limit} / 5>")),
    )


def _mask_and_soft_overlong(setting: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    return (SettingLine("--overlong_filter", "true"), *_soft_overlong(setting, knobs))


_MAPPINGS = with_changes(
    MAPPINGS,
    KnobMapping("loss", "loss_type", read=read_loss,
        values={"ppo_clip": {_LEVEL: "token"}, "gspo": {_LEVEL: "sequence"},
                "gspo_token": {_LEVEL: "sequence_token"}},
        write=Unsupported("no --loss_type of 4.6 computes it"), default="grpo"),
    KnobMapping("aggregation", "loss_type",
        values={"sequence-mean": "grpo", "token-mean": "dapo",
                "constant": WithNote("dr_grpo",
                    "changes only the denominator; Dr. GRPO also requires --scale_rewards none")},
        read={"bnpo": "token-mean"},
        write=Unsupported("use --loss_type dapo, the mean over all tokens of the batch")),
    KnobMapping("advantage", "scale_rewards", values={"group": "group", "centred": "none"},
        read=_read_advantage, other_keys=("advantage_estimator", *_TEACHERS),
        write=Unsupported("see --advantage_estimator for the available estimators")),
    KnobMapping("correction", _MODE, reads=False,
        values={"none": NothingToSet(f"omit --{_MODE}"), "tis_token": "token_truncate",
                "tis_sequence": WithNote("sequence_truncate",
                    "uses the geometric mean, not the product")},
        write=Unsupported(f"see --{_MODE} for the available corrections")),
    KnobMapping("correction_cap", "rollout_importance_sampling_threshold", reads=False),
    always("old_logprobs", "recompute",
        "ms-swift always computes old log-probabilities with its own model",
        "old log-probabilities always come from its own model"),
    KnobMapping("dynamic_sampling", "dynamic_sample",
        values={True: {"dynamic_sample": True, "max_resample_times": 3}, False: False}, read=as_is),
    KnobMapping("overlong", "overlong_filter",
        values={"none": False, "mask": True, "soft-punishment": _soft_overlong,
                "mask-and-soft-punishment": _mask_and_soft_overlong,
                "stop-properly": Unsupported(
                    "return 0 for truncated responses in your reward function")}),
    KnobMapping("overlong_buffer", "soft_cache_length", reads=False),
    KnobMapping("kl_coefficient", "beta"),
    unsupported("entropy_coefficient", "raise --epsilon_high or --temperature instead"),
    KnobMapping("routing_replay", "router_replay_mode", reads=False,
        values={"none": "disabled", "R2": WithNote("R2", _MEGATRON),
                "R3": WithNote("R3", f"{_MEGATRON} and vLLM 0.14 or later")}),
    nothing_to_set("sampler_sync_every",
        "ms-swift syncs the weights before every generation; --async_generate samples one step "
        "behind"),
)

_ENGINE_SETTINGS = (
    KnobMapping("sampler_dtype", "torch_dtype", note="for sampler and learner"),
    KnobMapping("learner_dtype", "torch_dtype", note="for sampler and learner"),
    unsupported("float32_head", "vLLM computes the head in --torch_dtype"),
    KnobMapping("sampler_tensor_parallel", "vllm_tensor_parallel_size"),
    nothing_to_set("unquantized_sampler", "omit --vllm_quantization"),
    KnobMapping("unquantized_cache", "vllm_engine_kwargs",
        write="'{\"kv_cache_dtype\": \"auto\"}'"),
    KnobMapping("whole_distribution", write={"top_p": "1.0", "top_k": "-1"}),
    nothing_to_set("one_temperature", "ms-swift scores at --temperature, as it samples"),
    nothing_to_set("processed_logprobs",
        "ms-swift always requests processed log-probabilities from vLLM"),
    KnobMapping("no_prefix_cache", "vllm_enable_prefix_caching", write=False),
    KnobMapping("small_micro_batch",
        write={"per_device_train_batch_size": 1,
               "gradient_accumulation_steps": "<current value x per_device_train_batch_size>"}),
    KnobMapping("gradient_checkpointing", "gradient_checkpointing"),
    KnobMapping("sampler_memory", "vllm_gpu_memory_utilization",
        write="<current value - 0.1>", note="if sampler and learner share the GPUs"),
    KnobMapping("balanced_routers", "router_aux_loss_coef",
        note="for megatron rlhf: --moe_aux_loss_coeff"),
)

KNOBS = KnobTable(
    title="ms-swift",
    syntax=Syntax(prefix="--"),
    mappings=_MAPPINGS,
    engine_settings=_ENGINE_SETTINGS,
    methods=METHODS,
    facts=FACTS,
    defaults=DEFAULTS,
    checkpoint_interval="save_steps",
    starts_with={"updates_per_batch": 1},
)

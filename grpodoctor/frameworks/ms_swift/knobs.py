"""ms-swift: command-line flags of `swift rlhf --rlhf_type grpo`, checked against 4.6."""

from __future__ import annotations

from grpodoctor.frameworks.knob_mapping import (
    KnobMapping,
    KnobTable,
    NothingToSet,
    Product,
    SettingLine,
    Settings,
    Syntax,
    Unsupported,
    WithNote,
    as_is,
    known_or,
)
from grpodoctor.frameworks.trl.knobs import read_clip_high
from grpodoctor.vocabulary.knobs import Setting

_MODE = "rollout_importance_sampling_mode"
_MEGATRON = "for megatron rlhf with megatron-core 0.16 or later"


def _soft_overlong(_: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    limit = "<max_completion_length"
    return (
        SettingLine("--reward_funcs", "<yours> soft_overlong"),
        SettingLine("--soft_max_length", known_or(knobs, "max_length", f"{limit}>")),
        SettingLine("--soft_cache_length", known_or(knobs, "overlong_buffer", f"{limit} / 5>")),
    )


_MAPPINGS = (
    KnobMapping(
        "loss",
        "loss_type",
        read={
            **dict.fromkeys(("grpo", "bnpo", "dr_grpo", "dapo"), "ppo_clip"),
            "cispo": "cispo",
            "sapo": "sapo",
        },
        values={
            "ppo_clip": {"importance_sampling_level": "token"},
            "gspo": {"importance_sampling_level": "sequence"},
            "gspo_token": {"importance_sampling_level": "sequence_token"},
        },
        write=Unsupported("see --loss_type for the available variants"),
        default="grpo",
    ),
    KnobMapping("clip_low", "epsilon"),
    KnobMapping("clip_high", "epsilon_high", read=read_clip_high),
    KnobMapping(
        "aggregation",
        "loss_type",
        values={
            "sequence-mean": "grpo",
            "token-mean": "dapo",
            "constant": WithNote(
                "dr_grpo",
                "changes only the denominator; Dr. GRPO also requires --scale_rewards none",
            ),
        },
        read={"bnpo": "token-mean"},
        write=Unsupported("use --loss_type dapo, the mean over all tokens of the batch"),
    ),
    KnobMapping(
        "advantage",
        "scale_rewards",
        values={"group": "group", "centred": "none"},
        read={"batch": "batch_std", "gdpo": "gdpo"},
        write=Unsupported("see --advantage_estimator for the available estimators"),
    ),
    KnobMapping(
        "correction",
        _MODE,
        reads=False,
        values={
            "none": NothingToSet(f"omit --{_MODE}"),
            "tis_token": "token_truncate",
            "tis_sequence": WithNote(
                "sequence_truncate", "uses the geometric mean, not the product"
            ),
        },
        write=Unsupported(f"see --{_MODE} for the available corrections"),
    ),
    KnobMapping("correction_cap", "rollout_importance_sampling_threshold", reads=False),
    KnobMapping(
        "old_logprobs",
        values={
            "recompute": NothingToSet(
                "ms-swift always computes old log-probabilities with its own model"
            )
        },
        write=Unsupported("old log-probabilities always come from its own model"),
    ),
    KnobMapping(
        "dynamic_sampling",
        "dynamic_sample",
        values={True: {"dynamic_sample": True, "max_resample_times": 3}, False: False},
        read=as_is,
    ),
    KnobMapping(
        "overlong",
        "overlong_filter",
        values={"none": False, "mask": True, "soft-punishment": _soft_overlong},
    ),
    KnobMapping("overlong_buffer", "soft_cache_length", reads=False),
    KnobMapping("kl_coefficient", "beta"),
    KnobMapping(
        "entropy_coefficient", write=Unsupported("raise --epsilon_high or --temperature instead")
    ),
    KnobMapping("learning_rate", "learning_rate"),
    KnobMapping("temperature", "temperature"),
    KnobMapping("group_size", "num_generations"),
    KnobMapping(
        "prompts_per_batch",
        "generation_batch_size",
        reads=False,
        write=Product("group_size", "counts completions"),
    ),
    KnobMapping(
        "updates_per_batch",
        "num_iterations",
        note="as long as steps_per_generation equals gradient_accumulation_steps",
    ),
    KnobMapping("max_length", "max_completion_length"),
    KnobMapping(
        "routing_replay",
        "router_replay_mode",
        reads=False,
        values={
            "none": "disabled",
            "R2": WithNote("R2", _MEGATRON),
            "R3": WithNote("R3", f"{_MEGATRON} and vLLM 0.14 or later"),
        },
    ),
    KnobMapping(
        "sampler_sync_every",
        write=NothingToSet(
            "ms-swift syncs the weights before every generation; --async_generate samples one "
            "step behind"
        ),
    ),
)

_ENGINE_SETTINGS = (
    KnobMapping("sampler_dtype", "torch_dtype", note="for sampler and learner"),
    KnobMapping("learner_dtype", "torch_dtype", note="for sampler and learner"),
    KnobMapping("float32_head", write=Unsupported("vLLM computes the head in --torch_dtype")),
    KnobMapping("sampler_tensor_parallel", "vllm_tensor_parallel_size"),
    KnobMapping("unquantized_sampler", write=NothingToSet("omit --vllm_quantization")),
    KnobMapping("unquantized_cache", "vllm_engine_kwargs", write='\'{"kv_cache_dtype": "auto"}\''),
    KnobMapping("whole_distribution", write={"top_p": "1.0", "top_k": "-1"}),
    KnobMapping(
        "processed_logprobs",
        write=NothingToSet("ms-swift always requests processed log-probabilities from vLLM"),
    ),
    KnobMapping("no_prefix_cache", "vllm_enable_prefix_caching", write=False),
    KnobMapping(
        "balanced_routers", "router_aux_loss_coef", note="for megatron rlhf: --moe_aux_loss_coeff"
    ),
)

KNOBS = KnobTable(
    title="ms-swift",
    syntax=Syntax(prefix="--"),
    mappings=_MAPPINGS,
    engine_settings=_ENGINE_SETTINGS,
)

"""slime: command-line flags, checked against the main branch after v0.3.1."""

from __future__ import annotations

from grpodoctor.frameworks.knob_mapping import KnobMapping, KnobTable, nothing_to_set
from grpodoctor.frameworks.slime.methods import DEFAULTS, FACTS, METHODS
from grpodoctor.frameworks.written_settings import (
    NothingToSet,
    SettingLine,
    Settings,
    Syntax,
    Unsupported,
    WithNote,
    format_setting,
)
from grpodoctor.vocabulary.knobs import Setting

_FILTER = "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std"
_REWARD = Unsupported("add it to your own reward function (--custom-rm-path)")


def _kl(setting: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    why = "the gradient of the default k1 is zero in expectation"
    kind = SettingLine("--kl-loss-type", "low_var_kl", why)
    return (
        SettingLine("--use-kl-loss", ""),
        SettingLine("--kl-loss-coef", format_setting(setting)),
        *(() if "kl_estimator" in knobs else (kind,)),
    )


def _read_advantage(setting: Setting, settings: Settings) -> Setting | None:
    if setting in ("ppo", "reinforce_plus_plus_baseline"):
        return "gae" if setting == "ppo" else setting
    if setting not in ("grpo", "gspo", "cispo"):
        return None
    return "centred" if settings.get("disable_grpo_std_normalization") is True else "group"


def _read_kl(setting: Setting, settings: Settings) -> Setting | None:
    return setting if settings.get("use_kl_loss") is True else None


_MAPPINGS = (
    KnobMapping("loss", "advantage_estimator", values={"ppo_clip": "grpo", "gspo": "gspo"},
        read={"cispo": "cispo"},
        write=Unsupported("see --advantage-estimator for the available variants"), default="grpo"),
    KnobMapping("clip_low", "eps_clip"),
    KnobMapping("clip_high", "eps_clip_high", other_keys=("eps_clip",)),
    KnobMapping("aggregation", "calculate_per_token_loss", reads=False,
        values={"sequence-mean": False, "token-mean": True},
        write=Unsupported("write your own reducer and set --custom-pg-loss-reducer-function-path")),
    KnobMapping("advantage", "advantage_estimator",
        values={"group": {"disable_grpo_std_normalization": False},
                "centred": {"disable_grpo_std_normalization": True}},
        read=_read_advantage,
        write=Unsupported(
            "normalize the rewards in your own function (--custom-reward-post-process-path)")),
    KnobMapping("correction", "use_tis", values={"none": False, "tis_token": True},
        write=Unsupported("write your own correction and set --custom-tis-function-path")),
    KnobMapping("correction_cap", "tis_clip"),
    KnobMapping("old_logprobs", "use_rollout_logprobs",
        values={"recompute": False, "sampler": True}),
    KnobMapping("dynamic_sampling",
        values={True: {"dynamic_sampling_filter_path": WithNote(_FILTER,
                           "also raise --over-sampling-batch-size, to fill the batch")},
                False: {"dynamic_sampling_filter_path": False}}),
    KnobMapping("overlong",
        values={"none": NothingToSet("slime treats truncated responses like all others")},
        write=_REWARD),
    KnobMapping("overlong_buffer", write=_REWARD),
    KnobMapping("kl_coefficient", "kl_loss_coef", values={0.0: {"use_kl_loss": False}}, write=_kl,
        read=_read_kl),
    KnobMapping("entropy_coefficient", "entropy_coef"),
    KnobMapping("learning_rate", "lr"),
    KnobMapping("temperature", "rollout_temperature"),
    KnobMapping("group_size", "n_samples_per_prompt"),
    KnobMapping("prompts_per_batch", "rollout_batch_size"),
    KnobMapping("updates_per_batch", "num_steps_per_rollout",
        note="remove --global-batch-size, which would have to agree"),
    KnobMapping("max_length", "rollout_max_response_len"),
    KnobMapping("routing_replay",
        values={"none": NothingToSet("omit --use-routing-replay and --use-rollout-routing-replay"),
                "R2": {"use_routing_replay": True}, "R3": {"use_rollout_routing_replay": True}}),
    KnobMapping("sampler_sync_every", "update_weights_interval", reads=False,
        note="only with train_async.py; train.py syncs at every step"),
)

_ENGINE_SETTINGS = (
    KnobMapping("sampler_dtype", "sglang_dtype",
        note="--fp16 sets float16 for sampler and learner"),
    KnobMapping("learner_dtype", "fp16",
        values={"bfloat16": False, "float16": WithNote(True, "for sampler and learner")},
        write=Unsupported("Megatron computes in bfloat16, or in float16 with --fp16")),
    KnobMapping("float32_head", "sglang_enable_fp32_lm_head", write=True),
    KnobMapping("sampler_tensor_parallel", "rollout_num_gpus_per_engine"),
    nothing_to_set("unquantized_sampler",
        "set --hf-checkpoint to a checkpoint that is not quantized"),
    KnobMapping("unquantized_cache", "sglang_kv_cache_dtype", write="auto"),
    KnobMapping("whole_distribution", write={"rollout_top_p": "1.0", "rollout_top_k": "-1"}),
    nothing_to_set("one_temperature", "slime scores at --rollout-temperature, as it samples"),
    nothing_to_set("processed_logprobs", "SGLang returns processed log-probabilities by default"),
    KnobMapping("no_prefix_cache", "sglang_disable_radix_cache", write=True),
    KnobMapping("small_micro_batch", "max_tokens_per_gpu", write="<current value / 2>",
        note="requires --use-dynamic-batch-size; otherwise set --micro-batch-size 1"),
    KnobMapping("gradient_checkpointing",
        write={"recompute_granularity": "full", "recompute_method": "uniform",
               "recompute_num_layers": 1}),
    KnobMapping("sampler_memory", "sglang_mem_fraction_static", write="<current value - 0.1>",
        note="with --colocate"),
    KnobMapping("balanced_routers", "moe_aux_loss_coeff",
        enabled_by={"moe_router_load_balancing_type": "aux_loss"}),
)

KNOBS = KnobTable(
    title="slime",
    syntax=Syntax(prefix="--", dashes=True, bare_flags=True),
    mappings=_MAPPINGS,
    engine_settings=_ENGINE_SETTINGS,
    methods=METHODS,
    facts=FACTS,
    defaults=DEFAULTS,
    checkpoint_interval="save_interval",
)

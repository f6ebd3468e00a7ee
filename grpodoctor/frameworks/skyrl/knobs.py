"""SkyRL: overrides of its configuration, checked against the main branch of August 2026."""

from __future__ import annotations

from grpodoctor.frameworks.knob_mapping import (
    KnobMapping,
    KnobTable,
    Reader,
    always,
    nothing_to_set,
    unsupported,
)
from grpodoctor.frameworks.skyrl.methods import DEFAULTS, FACTS, METHODS
from grpodoctor.frameworks.written_settings import (
    SHORT_DTYPES,
    Lines,
    Quotient,
    SettingLine,
    Settings,
    Unsupported,
    WithNote,
    format_setting,
)
from grpodoctor.vocabulary.knobs import Setting

ALGORITHM = "trainer.algorithm"
_OFF_POLICY = f"{ALGORITHM}.off_policy_correction"
_SHAPE_REWARD = Unsupported("use generator.apply_overlong_filtering=true, or shape your own reward")
_ENGINE = "generator.inference_engine"
_MEGATRON = "trainer.policy.megatron_config"
_TRANSFORMER = f"{_MEGATRON}.transformer_config_kwargs"
_SAMPLING = "generator.sampling_params"


def _cap(setting: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    level = "sequence" if knobs.get("correction") == "tis_sequence" else "token"
    return (SettingLine(f"{_OFF_POLICY}.{level}_tis_ratio_clip_high", format_setting(setting)),)


def _replay(*, enabled: bool) -> Lines:
    return {
        f"{_MEGATRON}.moe_enable_routing_replay": enabled,
        f"{_ENGINE}.enable_return_routed_experts": enabled,
    }


def _read_updates(setting: Setting, settings: Settings) -> Setting | None:
    prompts = settings.get("trainer.train_batch_size")
    if not isinstance(setting, int) or not isinstance(prompts, int) or setting < 1:
        return None
    return max(1, prompts // setting)


def _read_advantage(setting: Setting, settings: Settings) -> Setting | None:
    if setting == "grpo":
        by_std = settings.get(f"{ALGORITHM}.grpo_norm_by_std", True)
        return "group" if by_std else "centred"
    return {"maxrl": "max_rl", "rloo": "leave_one_out", "gae": "gae"}.get(str(setting))


def _read_clip(side: str, usual: float) -> Reader:
    """The clip's own key, except with CISPO, which has keys for the bounds of its weight."""

    def read(_: Setting, settings: Settings) -> Setting | None:
        if settings.get(f"{ALGORITHM}.policy_loss_type") == "cispo":
            return settings.get(f"{ALGORITHM}.cispo.cispo_eps_clip_{side}", usual)
        return settings.get(f"{ALGORITHM}.eps_clip_{side}")

    return read


def _read_kl(setting: Setting, settings: Settings) -> Setting | None:
    return setting if settings.get(f"{ALGORITHM}.use_kl_loss", True) is True else 0.0


_MAPPINGS = (
    KnobMapping("loss", f"{ALGORITHM}.policy_loss_type",
        values={"ppo_clip": "regular", "gspo": "gspo"},
        read={"dual_clip": "ppo_clip", "dppo": "dppo_binary_tv",
              **{kind: kind for kind in ("cispo", "sapo", "clip_cov", "kl_cov")}},
        write=Unsupported(f"see {ALGORITHM}.policy_loss_type for the available variants"),
        default="regular"),
    KnobMapping("clip_low", f"{ALGORITHM}.eps_clip_low", read=_read_clip("low", 0.0),
        other_keys=(f"{ALGORITHM}.policy_loss_type",)),
    KnobMapping("clip_high", f"{ALGORITHM}.eps_clip_high", read=_read_clip("high", 5.0),
        other_keys=(f"{ALGORITHM}.policy_loss_type",)),
    KnobMapping("aggregation", f"{ALGORITHM}.loss_reduction",
        values={"sequence-mean": "sequence_mean", "token-mean": "token_mean",
                "prompt-mean": WithNote("prompt_mean", "check that your version has it"),
                "constant": WithNote("seq_mean_token_sum_norm", "divides by max_seq_len")},
        write=Unsupported(f"see {ALGORITHM}.loss_reduction for the available denominators")),
    KnobMapping("advantage", f"{ALGORITHM}.advantage_estimator",
        values={"group": {f"{ALGORITHM}.grpo_norm_by_std": True},
                "centred": {f"{ALGORITHM}.grpo_norm_by_std": False}},
        read=_read_advantage, default="grpo",
        write=Unsupported(f"see {ALGORITHM}.advantage_estimator for the available estimators")),
    KnobMapping("correction", f"{_OFF_POLICY}.tis_ratio_type",
        values={"none": {f"{_OFF_POLICY}.tis_ratio_type": "null"}, "tis_token": "token",
                "tis_sequence": "sequence"},
        write=Unsupported(f"see {_OFF_POLICY} for the available corrections")),
    KnobMapping("correction_cap", write=_cap),
    always("old_logprobs", "recompute",
        "the regular loss always recomputes old log-probabilities with the policy",
        "policy_loss_type=rollout_is is the loss on the sampler's log-probabilities"),
    KnobMapping("dynamic_sampling", f"{ALGORITHM}.dynamic_sampling.type", reads=False,
        values={True: "filter", False: "null"}),
    KnobMapping("overlong", "generator.apply_overlong_filtering",
        values={"none": False, "mask": True}, write=_SHAPE_REWARD),
    KnobMapping("overlong_buffer", write=_SHAPE_REWARD),
    KnobMapping("kl_coefficient", f"{ALGORITHM}.kl_loss_coef",
        values={0.0: {f"{ALGORITHM}.use_kl_loss": False}},
        enabled_by={f"{ALGORITHM}.use_kl_loss": True}, read=_read_kl),
    KnobMapping("entropy_coefficient", f"{ALGORITHM}.entropy_loss_coef", reads=False,
        values={0.0: {f"{ALGORITHM}.use_entropy_loss": False}},
        enabled_by={f"{ALGORITHM}.use_entropy_loss": True}),
    KnobMapping("learning_rate", "trainer.policy.optimizer_config.lr"),
    KnobMapping("temperature", f"{_SAMPLING}.temperature"),
    KnobMapping("group_size", "generator.n_samples_per_prompt"),
    KnobMapping("prompts_per_batch", "trainer.train_batch_size"),
    KnobMapping("updates_per_batch", "trainer.policy_mini_batch_size",
        write=Quotient(("prompts_per_batch",), "counts prompts"), read=_read_updates),
    KnobMapping("max_length", f"{_SAMPLING}.max_generate_length"),
    KnobMapping("routing_replay",
        values={"none": _replay(enabled=False), "R3": _replay(enabled=True)},
        write=Unsupported("moe_enable_routing_replay replays the sampler's routing (R3)")),
    nothing_to_set("sampler_sync_every",
        "SkyRL syncs the weights at every step; in fully asynchronous training limit staleness "
        "with fully_async.max_staleness_steps"),
)

_ENGINE_SETTINGS = (
    KnobMapping("sampler_dtype", f"{_ENGINE}.model_dtype"),
    KnobMapping("learner_dtype", "trainer.policy.fsdp_config.mixed_precision.param_dtype",
        values=SHORT_DTYPES),
    unsupported("float32_head", "vLLM computes the head in the model's dtype"),
    KnobMapping("sampler_tensor_parallel", f"{_ENGINE}.tensor_parallel_size"),
    nothing_to_set("unquantized_sampler",
        f"omit {_ENGINE}.engine_init_kwargs.quantization and serve a checkpoint that is not "
        "quantized"),
    KnobMapping("unquantized_cache", f"{_ENGINE}.engine_init_kwargs.kv_cache_dtype", write="auto"),
    KnobMapping("whole_distribution",
        write={f"{_SAMPLING}.top_p": "1.0", f"{_SAMPLING}.top_k": "-1",
               f"{_SAMPLING}.min_p": "0.0"}),
    KnobMapping("one_temperature",
        write={f"{_SAMPLING}.temperature": "1.0", "trainer.algorithm.temperature": "1.0"}),
    KnobMapping("processed_logprobs", f"{_ENGINE}.engine_init_kwargs.logprobs_mode",
        write="processed_logprobs"),
    KnobMapping("no_prefix_cache", f"{_ENGINE}.enable_prefix_caching", write=False),
    KnobMapping("small_micro_batch", "trainer.micro_train_batch_size_per_gpu", write=1),
    KnobMapping("gradient_checkpointing", "trainer.gradient_checkpointing"),
    KnobMapping("sampler_memory", f"{_ENGINE}.gpu_memory_utilization", write=0.7,
        note="the default is 0.8; take 0.1 off yours, if sampler and learner share the GPUs"),
    KnobMapping("balanced_routers", f"{_TRANSFORMER}.moe_aux_loss_coeff",
        enabled_by={f"{_TRANSFORMER}.moe_router_load_balancing_type": "aux_loss"}),
)

KNOBS = KnobTable(
    title="SkyRL",
    mappings=_MAPPINGS,
    engine_settings=_ENGINE_SETTINGS,
    methods=METHODS,
    facts=FACTS,
    defaults=DEFAULTS,
    checkpoint_interval="trainer.ckpt_interval",
)

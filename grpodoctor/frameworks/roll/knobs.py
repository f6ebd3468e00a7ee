"""ROLL: settings of its YAML config with dotted keys, checked in v0.3.0 and in commit 8eb27cc2."""

from __future__ import annotations

from grpodoctor.frameworks.knob_mapping import KnobMapping, KnobTable, always, unsupported
from grpodoctor.frameworks.roll.config_values import (
    FILTERS,
    SAMPLING,
    TRAINING,
    WEIGHT,
    if_sampling,
    read_advantage,
    read_clip,
    read_loss,
    read_max_length,
    read_prompts,
    read_updates,
)
from grpodoctor.frameworks.roll.methods import DEFAULTS, FACTS, METHODS, weighted
from grpodoctor.frameworks.written_settings import (
    SHORT_DTYPES,
    Lines,
    SettingLine,
    Settings,
    Unsupported,
    WithNote,
    format_setting,
)
from grpodoctor.vocabulary.knobs import Setting

_ENGINE = "actor_infer.strategy_args.strategy_config"
_QUERIES = "rewards.<domain>.query_filter_config"
_SHAPE_REWARD = Unsupported("use max_len_mask=true, or shape the score in your own reward worker")


def _normalization(mean: str, std: str, *, whiten: bool = False) -> Lines:
    return {
        "adv_estimator": "reinforce",
        "norm_mean_type": WithNote(mean, "under reward_normalization in the agentic pipeline"),
        "norm_std_type": std,
        "whiten_advantages": whiten,
    }


def _replay(mode: str) -> Lines:
    return {
        "actor_train.router_replay.mode": WithNote(mode, "Megatron only"),
        "actor_infer.router_replay.mode": WithNote(mode, "SGLang only"),
    }


def _updates(setting: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    sizes = [knobs.get(name) for name in ("prompts_per_batch", "group_size")]
    counts = [size for size in sizes if isinstance(size, int)]
    whole = str(counts[0] * counts[1]) if len(counts) == 2 else "responses per batch"
    size = f"<{whole} / {format_setting(setting)} / ranks / per_device_train_batch_size>"
    note = "ranks: data-parallel ranks of actor_train"
    return (SettingLine(f"{TRAINING}.gradient_accumulation_steps", size, note),)


def _read_kl(_: Setting, settings: Settings) -> Setting | None:
    return settings.get("kl_loss_coef", 0.0) if settings.get("use_kl_loss") is True else 0.0


def _read_correction(setting: Setting, settings: Settings) -> Setting | None:
    """The weight. The config lists the filters, and lists are not read."""
    if setting is not True:
        return None if settings.get(FILTERS) is True else "none"
    level = str(settings.get(f"{WEIGHT}.weight_type", "token"))
    return {"token": "tis_token", "sequence": "tis_sequence"}.get(level)


_MAPPINGS = (
    KnobMapping("loss", "importance_sampling",
        values={"ppo_clip": "token",
                "gspo": WithNote("seq", "the agentic pipeline has ratio_type=segment, per turn")},
        read=read_loss, default="token",
        write=Unsupported("see actor_train.pg_variant for the available variants")),
    KnobMapping("clip_low", "pg_clip_low", other_keys=("pg_clip", "use_pg_clip_range"),
        read=lambda _, settings: read_clip("low", settings)),
    KnobMapping("clip_high", "pg_clip_high", other_keys=("pg_clip", "use_pg_clip_range"),
        read=lambda _, settings: read_clip("high", settings)),
    KnobMapping("aggregation", "loss_agg_mode",
        values={"sequence-mean": "seq-mean-token-mean", "token-mean": "token-mean",
                "sequence-mean-token-sum": "seq-mean-token-sum",
                "constant": WithNote("seq-mean-token-sum-norm",
                    "divides by sequence_length and not by the number of responses; "
                    "lower the learning rate")},
        write=Unsupported("see loss_agg_mode for the available denominators")),
    KnobMapping("advantage", "adv_estimator",
        values={"group": {"adv_estimator": "grpo"}, "centred": _normalization("group", "null"),
                "batch_std": _normalization("group", "batch"),
                "none": _normalization("null", "null"), "gae": "gae"},
        read=read_advantage,
        write=Unsupported("use norm_mean_type, norm_std_type and whiten_advantages")),
    KnobMapping("correction", f"{WEIGHT}.enabled",
        values={"none": {f"{WEIGHT}.enabled": False, FILTERS: "[]"}, "tis_token": weighted("token"),
                "tis_sequence": weighted("sequence")},
        read=_read_correction,
        write=Unsupported("see train_infer_correction for the available corrections")),
    KnobMapping("correction_cap", f"{WEIGHT}.upper_bound"),
    always("old_logprobs", "recompute", "ROLL computes old log-probabilities with the learner",
        "old log-probabilities are always the learner's; set "
        "force_disable_old_logprobs_recompute=true for one forward pass less"),
    KnobMapping("dynamic_sampling", f"{_QUERIES}.type", reads=False,
        values={True: {f"{_QUERIES}.type": WithNote("std_filter",
                           "in each domain; the agentic pipeline has "
                           "train_env_manager.group_filter_cls"),
                       f"{_QUERIES}.filter_args.std_threshold": 0},
                False: "no_filter"}),
    KnobMapping("overlong", "max_len_mask",
        values={"none": False, "mask": WithNote(True, "RLVR only")}, write=_SHAPE_REWARD),
    KnobMapping("overlong_buffer", write=_SHAPE_REWARD),
    KnobMapping("kl_coefficient", "kl_loss_coef", values={0.0: {"use_kl_loss": False}},
        enabled_by={"use_kl_loss": True}, read=_read_kl, other_keys=("use_kl_loss",)),
    KnobMapping("entropy_coefficient", "entropy_loss_coef"),
    KnobMapping("learning_rate", f"{TRAINING}.learning_rate"),
    KnobMapping("temperature", f"{SAMPLING}.temperature", read=if_sampling, default=0.95),
    KnobMapping("group_size", "num_return_sequences_in_group",
        other_keys=("train_env_manager.group_size",),
        note="train_env_manager.group_size in the agentic pipeline"),
    KnobMapping("prompts_per_batch", "rollout_batch_size", read=read_prompts,
        note="the agentic pipeline counts trajectories"),
    KnobMapping("updates_per_batch", "ppo_epochs", write=_updates, read=read_updates, default=1),
    KnobMapping("max_length", "response_length", other_keys=("sequence_length",),
        read=read_max_length, note="remove sequence_length, which overrides it"),
    KnobMapping("routing_replay", "actor_train.router_replay.mode",
        values={"none": _replay("disable"), "R3": _replay("R3")},
        read={"disable": "none", "R3": "R3"},
        write=Unsupported("router_replay.mode=R3 replays the sampler's routing")),
    KnobMapping("sampler_sync_every", "actor_train.model_update_frequency"),
)

_ENGINE_SETTINGS = (
    KnobMapping("sampler_dtype", "actor_infer.model_args.dtype", values=SHORT_DTYPES),
    KnobMapping("learner_dtype", "actor_train.model_args.dtype", values=SHORT_DTYPES),
    unsupported("float32_head", "actor_train.logits_in_fp32=true affects the learner only"),
    KnobMapping("sampler_tensor_parallel", f"{_ENGINE}.tensor_parallel_size"),
    KnobMapping("unquantized_sampler", f"{_ENGINE}.quantization", write="null"),
    KnobMapping("unquantized_cache", f"{_ENGINE}.kv_cache_dtype", write="auto"),
    KnobMapping("whole_distribution",
        write={f"{SAMPLING}.top_p": "1.0", f"{SAMPLING}.top_k": "-1"}),
    KnobMapping("one_temperature", f"{SAMPLING}.temperature", write="1.0",
        note="ROLL never divides the learner's logits by the temperature"),
    KnobMapping("processed_logprobs", f"{_ENGINE}.logprobs_mode", write="processed_logprobs",
        note="vLLM only"),
    KnobMapping("no_prefix_cache", f"{_ENGINE}.enable_prefix_caching", write=False,
        note="disable_radix_cache=true with SGLang"),
    KnobMapping("small_micro_batch",
        write={"actor_train.training_args.per_device_train_batch_size": 1,
               "actor_train.training_args.gradient_accumulation_steps":
                   "<current value x "
                   "actor_train.training_args.per_device_train_batch_size>"}),
    KnobMapping("gradient_checkpointing", "actor_train.model_args.disable_gradient_checkpointing",
        write=False),
    KnobMapping("sampler_memory", f"{_ENGINE}.gpu_memory_utilization",
        write="<current value - 0.1>", note="mem_fraction_static with SGLang"),
    KnobMapping("balanced_routers", "actor_train.model_args.moe_aux_loss_coef"),
)

KNOBS = KnobTable(
    title="ROLL",
    mappings=_MAPPINGS,
    engine_settings=_ENGINE_SETTINGS,
    methods=METHODS,
    facts=FACTS,
    defaults=DEFAULTS,
    checkpoint_interval="save_steps",
)

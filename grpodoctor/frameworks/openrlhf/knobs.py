"""OpenRLHF: dotted command-line flags, checked against v0.11 (flat names before v0.10.2)."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.knob_mapping import (
    KnobMapping,
    KnobTable,
    Reader,
    always,
    as_is,
    nothing_to_set,
    unsupported,
)
from grpodoctor.frameworks.openrlhf.methods import DEFAULTS, FACTS, FORMER_KEYS, METHODS
from grpodoctor.frameworks.written_settings import (
    NothingToSet,
    Quotient,
    SettingLine,
    Settings,
    Syntax,
    Unsupported,
    WithNote,
    format_setting,
    known_or,
    overlong_weight,
)
from grpodoctor.vocabulary.knobs import Setting

_IS = "algo.advantage.is_correction"
_BOUNDS = ("actor.eps_clip_low_high",)
_BOTH_SIDES = 2
_CORRECTIONS: Mapping[str, Setting] = {
    "tis": "tis_token",
    "icepop": "icepop",
    "seq-mask-tis": "geo_mask",
}


def _clip(_: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    bounds = f"{known_or(knobs, 'clip_low', '0.2')} {known_or(knobs, 'clip_high', '0.2')}"
    note = "low and high bound; 0.2 stands for an unknown one"
    return (SettingLine("--actor.eps_clip_low_high", bounds, note),)


def _read_clip(side: int) -> Reader:
    """One of the two bounds, which replace the common one."""

    def read(_: Setting, settings: Settings) -> Setting | None:
        bounds = str(settings.get(_BOUNDS[0], "")).split()
        if len(bounds) != _BOTH_SIDES:
            return settings.get("actor.eps_clip")
        try:
            return float(bounds[side])
        except ValueError:
            return None

    return read


def _soft_overlong(_: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    buffer = known_or(knobs, "overlong_buffer", "<rollout.max_new_tokens / 5>")
    return (
        SettingLine("--reward.overlong_buffer_len", buffer),
        overlong_weight("--reward.overlong_penalty_factor", knobs),
    )


def _cap(setting: Setting, _: Settings) -> tuple[SettingLine, ...]:
    note = "lower and upper bound; TIS has no lower bound"
    return (SettingLine(f"--{_IS}_threshold", f"0 {format_setting(setting)}", note),)


def _read_correction(setting: Setting, settings: Settings) -> Setting | None:
    if settings.get(f"{_IS}_enable") is not True:
        return "none"
    return _CORRECTIONS.get(str(setting))


_MAPPINGS = (
    KnobMapping("loss", "actor.policy_loss_type", values={"ppo_clip": "ppo", "gspo": "gspo"},
        write=Unsupported("see --actor.policy_loss_type for the available variants"),
        default="ppo"),
    KnobMapping("clip_low", "actor.eps_clip", write=_clip, read=_read_clip(0), other_keys=_BOUNDS),
    KnobMapping("clip_high", "actor.eps_clip", write=_clip, read=_read_clip(1), other_keys=_BOUNDS),
    always("aggregation", "token-mean", "OpenRLHF always averages over all tokens",
        "the loss is always averaged over all tokens"),
    KnobMapping("advantage", "algo.advantage.estimator",
        values={"group": "group_norm",
                "centred": WithNote("dr_grpo",
                    "drops the standard deviation; the denominator stays the token mean")},
        read={"rloo": "leave_one_out", "gae": "gae"},
        write=Unsupported("see --algo.advantage.estimator for the available estimators")),
    KnobMapping("correction", f"{_IS}_type",
        values={"none": {f"{_IS}_enable": False},
                "tis_token": {f"{_IS}_enable": True, f"{_IS}_type": "tis"}},
        read=_read_correction,
        write=Unsupported(f"use --{_IS}_type tis, which truncates per token")),
    KnobMapping("correction_cap", write=_cap),
    always("old_logprobs", "recompute",
        "OpenRLHF always recomputes old log-probabilities with the actor",
        "old log-probabilities always come from the actor"),
    KnobMapping("dynamic_sampling", "algo.dynamic_filtering_enable",
        values={True: {"algo.dynamic_filtering_enable": True,
                       "algo.dynamic_filtering_range": WithNote("0 1",
                           "requires scores from 0 to 1")}, False: False},
        read=as_is),
    KnobMapping("overlong",
        values={"none": NothingToSet("omit --reward.overlong_buffer_len"),
                "mask": Unsupported(
                    "truncated responses cannot be masked in the loss; use the soft punishment"),
                "soft-punishment": _soft_overlong,
                "mask-and-soft-punishment": Unsupported(
                    "truncated responses cannot be masked in the loss; use the soft punishment"),
                "stop-properly": Unsupported(
                    "return 0 for truncated responses in your reward function")}),
    KnobMapping("overlong_buffer", "reward.overlong_buffer_len", reads=False),
    KnobMapping("kl_coefficient", "algo.kl.init_coef",
        note="in the reward; --algo.kl.use_loss moves it into the loss"),
    KnobMapping("entropy_coefficient", "actor.entropy_coef"),
    KnobMapping("learning_rate", "actor.adam.lr"),
    KnobMapping("temperature", "rollout.temperature"),
    KnobMapping("group_size", "rollout.n_samples_per_prompt"),
    KnobMapping("prompts_per_batch", "rollout.batch_size"),
    KnobMapping("updates_per_batch", "train.batch_size", reads=False,
        write=Quotient(("prompts_per_batch", "group_size"), "counts responses")),
    KnobMapping("max_length", "rollout.max_new_tokens"),
    always("routing_replay", "none", "OpenRLHF never replays routing",
        "sequence-level importance ratios need none: --actor.policy_loss_type gspo"),
    nothing_to_set("sampler_sync_every",
        "OpenRLHF syncs the weights before every rollout; in asynchronous training keep "
        "--train.async_queue_size at 1"),
)

_ENGINE_SETTINGS = (
    always("sampler_dtype", "bfloat16", "OpenRLHF always samples in bfloat16",
        "openrlhf/trainer/ray/vllm_engine.py sets vLLM's dtype to bfloat16"),
    KnobMapping("learner_dtype", "ds.param_dtype", values={"bfloat16": "bf16", "float16": "fp16"},
        write=Unsupported("--ds.param_dtype takes bf16 or fp16")),
    unsupported("float32_head", "vLLM computes the head in bfloat16"),
    KnobMapping("sampler_tensor_parallel", "vllm.tensor_parallel_size"),
    nothing_to_set("unquantized_sampler",
        "OpenRLHF does not quantize the sampler: give a checkpoint that is not quantized"),
    nothing_to_set("unquantized_cache", "OpenRLHF never quantizes the key-value cache"),
    KnobMapping("whole_distribution", "rollout.top_p", write="1.0"),
    nothing_to_set("one_temperature", "OpenRLHF scores at --rollout.temperature, as it samples"),
    KnobMapping("processed_logprobs", f"{_IS}_enable", write=True,
        note="requests processed log-probabilities from vLLM and weights tokens with them"),
    KnobMapping("no_prefix_cache", "vllm.enable_prefix_caching", write=False),
    KnobMapping("small_micro_batch", "train.micro_batch_size", write=1,
        note="micro_train_batch_size in older versions"),
    KnobMapping("gradient_checkpointing", "actor.gradient_checkpointing_enable",
        note="gradient_checkpointing in older versions"),
    KnobMapping("sampler_memory", "vllm.gpu_memory_utilization",
        write="<current value - 0.1>", note="if sampler and learner share the GPUs"),
    KnobMapping("balanced_routers", "actor.aux_loss_coef"),
)

KNOBS = KnobTable(
    title="OpenRLHF",
    syntax=Syntax(prefix="--", bare_flags=True),
    mappings=_MAPPINGS,
    engine_settings=_ENGINE_SETTINGS,
    methods=METHODS,
    facts=FACTS,
    defaults=DEFAULTS,
    former_keys=FORMER_KEYS,
)

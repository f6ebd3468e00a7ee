"""open-instruct: flags of its GRPO programs, checked against the main branch after v0.3."""

from __future__ import annotations

from math import prod

from grpodoctor.frameworks.knob_mapping import (
    KnobMapping,
    KnobTable,
    always,
    as_is,
    nothing_to_set,
    unsupported,
)
from grpodoctor.frameworks.open_instruct.methods import DEFAULTS, FACTS, METHODS
from grpodoctor.frameworks.written_settings import (
    SettingLine,
    Settings,
    Syntax,
    Unsupported,
    WithNote,
)
from grpodoctor.vocabulary.knobs import Setting

_SHAPE_REWARD = Unsupported("use --mask_truncated_completions True, or shape your own reward")


def _constant(_: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    key = "--loss_denominator"
    sizes = [knobs.get(name) for name in ("prompts_per_batch", "group_size", "max_length")]
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) < len(sizes):
        return (SettingLine(key, "<responses per update x --response_length>"),)
    updates = knobs.get("updates_per_batch", 1)
    denominator = prod(known) // updates if isinstance(updates, int) else prod(known)
    return (SettingLine(key, str(denominator), "responses per update times the length limit"),)


def _read_aggregation(setting: Setting, _: Settings) -> Setting | None:
    if isinstance(setting, bool | str):
        return "token-mean" if setting == "token" else None
    return "constant" if setting > 0 else None


def _read_correction(setting: Setting, settings: Settings) -> Setting | None:
    if setting is not True:
        return "none"
    return "icepop" if settings.get("rho_mask_upper_bound", 0) else "tis_token"


_MAPPINGS = (
    KnobMapping("loss", "loss_fn", values={"ppo_clip": "dapo"}, read={"cispo": "cispo"},
        write=Unsupported("see --loss_fn for the available variants"), default="dapo"),
    KnobMapping("clip_low", "clip_lower"),
    KnobMapping("clip_high", "clip_higher"),
    KnobMapping("aggregation", "loss_denominator",
        values={"token-mean": "token", "constant": _constant}, read=_read_aggregation,
        write=Unsupported("use --loss_denominator token, the mean over all tokens")),
    KnobMapping("advantage", "advantage_normalization_type",
        values={"group": "standard", "centred": "centered"},
        write=Unsupported("use --advantage_normalization_type standard or centered")),
    KnobMapping("correction", "use_rho_correction",
        values={"none": False,
                "tis_token": {"use_rho_correction": True, "rho_mask_sequence_level": False}},
        read=_read_correction,
        write=Unsupported("use --use_rho_correction True, which truncates per token")),
    KnobMapping("correction_cap", "rho_clamp_upper_bound"),
    KnobMapping("old_logprobs", "use_vllm_logprobs", reads=False,
        values={"recompute": False, "sampler": True}),
    KnobMapping("dynamic_sampling", "active_sampling",
        values={True: {"filter_zero_std_samples": True, "active_sampling": True}, False: False},
        read=as_is),
    KnobMapping("overlong", "mask_truncated_completions", values={"none": False, "mask": True},
        write=_SHAPE_REWARD),
    KnobMapping("overlong_buffer", write=_SHAPE_REWARD),
    KnobMapping("kl_coefficient", "beta", note="requires --load_ref_policy True"),
    unsupported("entropy_coefficient", "raise --clip_higher or --temperature instead"),
    KnobMapping("learning_rate", "learning_rate"),
    KnobMapping("temperature", "temperature"),
    KnobMapping("group_size", "num_samples_per_prompt_rollout"),
    KnobMapping("prompts_per_batch", "num_unique_prompts_rollout"),
    KnobMapping("updates_per_batch", "num_mini_batches"),
    KnobMapping("max_length", "response_length"),
    always("routing_replay", "none", "open-instruct never replays routing",
        "train in a framework that replays routing, or freeze the routers"),
    nothing_to_set("sampler_sync_every",
        "open-instruct syncs the weights after every step; limit staleness with --async_steps"),
)

_ENGINE_SETTINGS = (
    always("sampler_dtype", "bfloat16", "open-instruct always samples in bfloat16",
        "open_instruct/vllm_utils.py sets vLLM's dtype to bfloat16"),
    KnobMapping("learner_dtype", "model_dtype",
        values={"bfloat16": "bfloat16",
                "float32": WithNote("float32", "in grpo.py, not in grpo_fast.py")},
        write=Unsupported("--model_dtype takes bfloat16 or float32")),
    unsupported("float32_head", "vLLM computes the head in bfloat16"),
    KnobMapping("sampler_tensor_parallel", "vllm_tensor_parallel_size"),
    nothing_to_set("unquantized_sampler",
        "open-instruct does not quantize the sampler: give a checkpoint that is not quantized"),
    nothing_to_set("unquantized_cache", "open-instruct never quantizes the key-value cache"),
    KnobMapping("whole_distribution", "vllm_top_p", write="1.0"),
    nothing_to_set("one_temperature", "open-instruct scores at --temperature, as it samples"),
    nothing_to_set("processed_logprobs",
        "open-instruct always requests processed log-probabilities"),
    KnobMapping("no_prefix_cache", "vllm_enable_prefix_caching", write=False),
    KnobMapping("small_micro_batch", "pack_length", write="<current value / 2>",
        note="at least the longest prompt and response together"),
    KnobMapping("gradient_checkpointing", "gradient_checkpointing"),
    KnobMapping("sampler_memory", "vllm_gpu_memory_utilization", write=0.8,
        note="default 0.9; only with --single_gpu_mode, or if the sampler itself ran out"),
    unsupported("balanced_routers", "train with a lower learning rate instead"),
)

KNOBS = KnobTable(
    title="open-instruct",
    syntax=Syntax(prefix="--", capital_booleans=True),
    mappings=_MAPPINGS,
    engine_settings=_ENGINE_SETTINGS,
    methods=METHODS,
    facts=FACTS,
    defaults=DEFAULTS,
)

"""TRL's `GRPOTrainer`: arguments of `GRPOConfig`, checked against 1.10 and 1.16."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.knob_mapping import (
    KnobMapping,
    KnobTable,
    always,
    nothing_to_set,
    unsupported,
)
from grpodoctor.frameworks.trl.methods import DEFAULTS, FACTS, METHODS
from grpodoctor.frameworks.written_settings import (
    Lines,
    Raw,
    SettingLine,
    Settings,
    Syntax,
    Unsupported,
    WithNote,
    format_setting,
    known_or,
)
from grpodoctor.vocabulary.knobs import Setting

_VLLM = "takes effect only with use_vllm=True"
_SERVER = "trl vllm-serve"
_LEVEL = "importance_sampling_level"
_CLIPPED = ("grpo", "bnpo", "dr_grpo", "dapo")
_BY_LEVEL: Mapping[Setting, str] = {"sequence": "gspo", "sequence_token": "gspo_token"}


def _truncation(mode: str) -> dict[str, Setting | WithNote]:
    return {
        "vllm_importance_sampling_correction": WithNote(True, _VLLM),
        "vllm_importance_sampling_mode": mode,
    }


def _server_dtype(setting: Setting, _: Settings) -> tuple[SettingLine, ...]:
    note = 'vllm_mode="colocate" uses the dtype of the checkpoint'
    return (SettingLine(f"{_SERVER} --dtype", str(setting), note),)


def _soft_overlong(_: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    limit = known_or(knobs, "max_length", "<max_completion_length>")
    buffer = known_or(knobs, "overlong_buffer", "<max_completion_length / 5>")
    call = f"get_soft_overlong_punishment({limit}, {buffer})"
    weight = "" if "overlong_weight" in knobs else "; reward_weights of 0.5 for rewards of 0 and 1"
    lines = [SettingLine("reward_funcs", f"[..., {call}]", f"import it from trl.rewards{weight}")]
    if "overlong_weight" in knobs:
        weight = format_setting(knobs["overlong_weight"])
        lines.append(SettingLine("reward_weights", f"[..., {weight}]", "the punishment's is last"))
    return tuple(lines)


def _mask_and_soft_overlong(setting: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    mask = SettingLine("mask_truncated_completions", "True")
    return (mask, *_soft_overlong(setting, knobs))


def read_loss(_: Setting, settings: Settings) -> Setting | None:
    """The loss and the level of its ratios: a clipped loss with sequence ratios is GSPO."""
    kind = settings.get("loss_type", "grpo")
    if kind in _CLIPPED:
        return _BY_LEVEL.get(settings.get(_LEVEL, "token"), "ppo_clip")
    return kind if kind in ("cispo", "sapo", "vespo", "luspo") else None


def read_clip_high(setting: Setting, settings: Settings) -> Setting | None:
    """`epsilon_high` is a distance from 1, except with CISPO, where it is the cap itself."""
    if not isinstance(setting, int | float):
        return None
    return setting - 1 if settings.get("loss_type") == "cispo" else setting


def _read_updates(setting: Setting, settings: Settings) -> Setting | None:
    """Passes over a batch times the optimizer steps of each pass."""
    steps = settings.get("steps_per_generation")
    accumulation = settings.get("gradient_accumulation_steps")
    if not isinstance(setting, int):
        return None
    if steps is None:
        return setting
    if not isinstance(steps, int) or not isinstance(accumulation, int) or accumulation < 1:
        return None
    return setting * max(1, steps // accumulation)


def _read_prompts(setting: Setting, settings: Settings) -> Setting | None:
    """`generation_batch_size` counts the completions of all processes."""
    group = settings.get("num_generations")
    if not isinstance(setting, int) or not isinstance(group, int) or group < 1:
        return None
    return None if setting % group else setting // group


def _prompts_of_one_update(prompts: Setting, knobs: Settings) -> Lines:
    """More accumulation: a larger `generation_batch_size` alone is split into more updates.

    TRL derives `steps_per_generation` from it, so each update has as many completions as before,
    and most of them are off-policy.
    """
    group = knobs.get("group_size")
    count = f"{format_setting(prompts)} x num_generations"
    if isinstance(prompts, int) and isinstance(group, int):
        count = str(prompts * group)
    share = Raw(f"<{count} / (per_device_train_batch_size x processes)>")
    note = "without generation_batch_size, which would split the batch into more updates"
    return {"gradient_accumulation_steps": WithNote(share, note)}


MAPPINGS = (
    KnobMapping("loss", "loss_type", other_keys=(_LEVEL,), read=read_loss,
        values={"ppo_clip": {_LEVEL: "token"},
                "gspo": {_LEVEL: WithNote("sequence", 'also requires loss_type="grpo"')},
                "luspo": {"loss_type": "luspo", _LEVEL: "sequence"},
                "reinforce": Unsupported("use RLOOTrainer with num_iterations=1")},
        write=Unsupported("no loss_type of 1.16 computes it")),
    KnobMapping("clip_low", "epsilon"),
    KnobMapping("clip_high", "epsilon_high", read=read_clip_high),
    KnobMapping("aggregation", "loss_type",
        read={"sapo": "sequence-mean", **dict.fromkeys(("bnpo", "cispo", "vespo"), "token-mean")},
        values={"sequence-mean": "grpo", "token-mean": "dapo",
                "constant": WithNote("dr_grpo",
                    'changes only the denominator; Dr. GRPO also requires scale_rewards="none"')},
        write=Unsupported('use loss_type="dapo", the mean over all tokens of the batch')),
    KnobMapping("advantage", "scale_rewards", values={"group": "group", "centred": "none"},
        read={True: "group", "batch": "batch_std", False: "centred"},
        write=Unsupported('use scale_rewards="group", "batch" or "none"')),
    KnobMapping("correction", "vllm_importance_sampling_mode",
        read={"token_truncate": "tis_token", "sequence_truncate": "tis_sequence",
              "token_mask": "mis_token", "sequence_mask": "mis_sequence"},
        values={"none": {"vllm_importance_sampling_correction": False},
                "tis_token": _truncation("token_truncate"),
                "tis_sequence": _truncation("sequence_truncate")},
        write=Unsupported('use vllm_importance_sampling_mode="token_truncate"')),
    KnobMapping("correction_cap", "vllm_importance_sampling_clip_max",
        other_keys=("vllm_importance_sampling_cap",),
        note="vllm_importance_sampling_cap in TRL 0.23 to 0.25"),
    always("old_logprobs", "recompute",
        "TRL always computes old log-probabilities with its own model",
        "old log-probabilities always come from its own model"),
    always("dynamic_sampling", False, "TRL never resamples groups",
        "drop prompts that are always or never solved from the dataset"),
    KnobMapping("overlong", "mask_truncated_completions",
        values={"none": False, "mask": True, "soft-punishment": _soft_overlong,
                "mask-and-soft-punishment": _mask_and_soft_overlong},
        write=Unsupported("use mask_truncated_completions=True")),
    # The second argument of the punishment: the same line as that of the first.
    KnobMapping("overlong_buffer", write=_soft_overlong, reads=False),
    KnobMapping("kl_coefficient", "beta",
        note="a change from 0 requires a restart: the reference model is loaded at the start"),
    KnobMapping("entropy_coefficient", "entropy_coef", note="only in recent versions"),
    KnobMapping("learning_rate", "learning_rate"),
    KnobMapping("temperature", "temperature"),
    KnobMapping("group_size", "num_generations"),
    KnobMapping("prompts_per_batch", "generation_batch_size", read=_read_prompts,
        write=_prompts_of_one_update),
    KnobMapping("updates_per_batch", "num_iterations", read=_read_updates,
        note="as long as steps_per_generation equals gradient_accumulation_steps"),
    KnobMapping("max_length", "max_completion_length"),
    always("routing_replay", "none", "TRL never replays routing",
        'sequence-level importance ratios need none: importance_sampling_level="sequence"'),
    nothing_to_set("sampler_sync_every", "TRL syncs the weights before every generation"),
)

_ENGINE_SETTINGS = (
    KnobMapping("sampler_dtype",
        write=_server_dtype),
    KnobMapping("learner_dtype",
        values={"float32": {"bf16": False, "fp16": False}, "bfloat16": {"bf16": True},
                "float16": {"fp16": True, "bf16": False}},
        write=Unsupported("use bf16=True or fp16=True")),
    unsupported("float32_head", "vLLM computes the head in the model's dtype"),
    KnobMapping("sampler_tensor_parallel", "vllm_tensor_parallel_size",
        note=f"with a server: {_SERVER} --tensor_parallel_size"),
    nothing_to_set("unquantized_sampler",
        "TRL quantizes the sampler if the model is quantized: load the model without "
        "quantization_config"),
    KnobMapping("unquantized_cache",
        write={f"{_SERVER} --kv_cache_dtype": WithNote(Raw("auto"),
                   'vllm_mode="colocate" never quantizes the cache')}),
    KnobMapping("whole_distribution",
        write={"top_p": Raw("1.0"), "top_k": 0, "min_p": Raw("None")}),
    nothing_to_set("one_temperature",
        "TRL scores at `temperature`; remove a temperature from generation_kwargs"),
    nothing_to_set("processed_logprobs",
        "TRL always requests processed log-probabilities from vLLM"),
    KnobMapping("no_prefix_cache", write={f"{_SERVER} --enable_prefix_caching": False}),
    KnobMapping("small_micro_batch",
        write={"per_device_train_batch_size": 1,
               "gradient_accumulation_steps":
                   Raw("<current value x per_device_train_batch_size>")}),
    KnobMapping("gradient_checkpointing", "gradient_checkpointing"),
    KnobMapping("sampler_memory", "vllm_gpu_memory_utilization", write=Raw("0.2"),
        note='the default is 0.3; take 0.1 off yours, with vllm_mode="colocate"'),
    KnobMapping("balanced_routers", "router_aux_loss_coef"),
)

KNOBS = KnobTable(
    title="TRL",
    syntax=Syntax(capital_booleans=True, quotes=True),
    mappings=MAPPINGS,
    engine_settings=_ENGINE_SETTINGS,
    methods=METHODS,
    facts=FACTS,
    defaults=DEFAULTS,
    checkpoint_interval="save_steps",
    starts_with={"updates_per_batch": 1},
)

"""AReaL: overrides of its configuration, checked against 2.0."""

from __future__ import annotations

from grpodoctor.frameworks.areal.methods import DEFAULTS, FACTS, METHODS
from grpodoctor.frameworks.knob_mapping import (
    KnobMapping,
    KnobTable,
    always,
    nothing_to_set,
    unsupported,
)
from grpodoctor.frameworks.written_settings import (
    Lines,
    SettingLine,
    Settings,
    Unsupported,
    WithNote,
    known_or,
    overlong_weight,
)
from grpodoctor.vocabulary.knobs import Setting

_REJECTION = "actor.rejection_sampling"


def _truncation(_: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    return (
        SettingLine("actor.use_decoupled_loss", "true"),
        SettingLine(f"{_REJECTION}.level", "token"),
        SettingLine(f"{_REJECTION}.action", "clamp"),
        SettingLine(f"{_REJECTION}.metric", "ratio"),
        SettingLine(f"{_REJECTION}.upper", known_or(knobs, "correction_cap", "2")),
    )


def _normalization(std_level: str) -> Lines:
    return {"actor.reward_norm.mean_level": "group", "actor.reward_norm.std_level": std_level}


def _soft_overlong(_: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    buffer = known_or(knobs, "overlong_buffer", "<gconfig.max_new_tokens / 5>")
    return (
        SettingLine("actor.overlong_reward_penalty", "true"),
        SettingLine("actor.overlong_tokens", buffer),
        overlong_weight("actor.overlong_penalty_factor", knobs),
    )


def _tensor_parallel(setting: Setting, _: Settings) -> tuple[SettingLine, ...]:
    note = "or sglang; d is the number of replicas"
    return (SettingLine("rollout.backend", f"vllm:d<replicas>t{setting}", note),)


def _read_loss(setting: Setting, settings: Settings) -> Setting | None:
    for flag, kind in (("actor.use_sapo_loss", "sapo"), ("actor.use_cispo_loss", "cispo")):
        if settings.get(flag) is True:
            return kind
    if isinstance(settings.get("actor.m2_threshold"), int | float):
        return "m2po"
    return "gspo" if setting == "sequence" else "ppo_clip"


_MAPPINGS = (
    KnobMapping("loss", "actor.importance_sampling_level",
        values={"ppo_clip": {"actor.importance_sampling_level": "token",
                             "actor.use_cispo_loss": False, "actor.use_sapo_loss": False},
                "gspo": WithNote("sequence", "weights responses by their number of tokens")},
        read=_read_loss, write=Unsupported("see the settings of actor for the available variants"),
        default="token"),
    KnobMapping("clip_low", "actor.eps_clip"),
    KnobMapping("clip_high", "actor.eps_clip_higher", other_keys=("actor.eps_clip",)),
    always("aggregation", "token-mean", "AReaL always averages over all tokens of the batch",
        "the loss is always averaged over all tokens of the batch"),
    KnobMapping("advantage",
        values={"group": _normalization("group"), "centred": _normalization("null")},
        write=Unsupported("use actor.reward_norm and actor.adv_norm")),
    KnobMapping("correction", values={"none": {_REJECTION: "null"}, "tis_token": _truncation},
        write=Unsupported(f"see {_REJECTION} for the available corrections")),
    KnobMapping("correction_cap", f"{_REJECTION}.upper", reads=False),
    KnobMapping("old_logprobs",
        values={"recompute": {"actor.recompute_logprob": True,
                              "actor.prox_logp_method": "recompute"},
                "sampler": {"actor.recompute_logprob": False, "actor.use_decoupled_loss": False}}),
    always("dynamic_sampling", False, "omit dynamic_filter_fn",
        "pass trainer.train() a dynamic_filter_fn that drops groups without variance"),
    KnobMapping("overlong",
        values={"none": {"actor.overlong_reward_penalty": False},
                "mask": Unsupported(
                    "actor.mask_no_eos_with_zero sets the reward of truncated responses to zero, "
                    "which does not mask them in the loss"), "soft-punishment": _soft_overlong,
                "mask-and-soft-punishment": Unsupported(
                    "truncated responses cannot be masked in the loss; use the soft punishment"),
                "stop-properly": {"actor.mask_no_eos_with_zero": True}}),
    KnobMapping("overlong_buffer", "actor.overlong_tokens", reads=False),
    KnobMapping("kl_coefficient", "actor.kl_ctl", note="in the reward"),
    unsupported("entropy_coefficient", "raise actor.eps_clip_higher or gconfig.temperature"),
    KnobMapping("learning_rate", "actor.optimizer.lr"),
    KnobMapping("temperature", "gconfig.temperature"),
    KnobMapping("group_size", "gconfig.n_samples"),
    KnobMapping("prompts_per_batch", "train_dataset.batch_size"),
    KnobMapping("updates_per_batch", "actor.ppo_n_minibatches"),
    KnobMapping("max_length", "gconfig.max_new_tokens"),
    KnobMapping("routing_replay", "rollout.return_routed_experts", reads=False,
        values={"none": False,
                "R3": WithNote(True,
                    "captures the routing; check that your version's training engine replays it")},
        write=Unsupported("rollout.return_routed_experts captures the sampler's routing (R3)")),
    nothing_to_set("sampler_sync_every",
        "AReaL syncs the weights at every step; limit staleness with "
        "rollout.max_head_offpolicyness=0"),
)

_ENGINE_SETTINGS = (
    KnobMapping("sampler_dtype", "vllm.dtype", note="or sglang.dtype"),
    KnobMapping("learner_dtype", "actor.dtype"),
    unsupported("float32_head", "the engine computes the head in vllm.dtype or sglang.dtype"),
    KnobMapping("sampler_tensor_parallel", write=_tensor_parallel),
    nothing_to_set("unquantized_sampler", "give the sampler a checkpoint that is not quantized"),
    KnobMapping("unquantized_cache", "sglang.kv_cache_dtype", write="auto",
        note="vLLM's cache is never quantized"),
    KnobMapping("whole_distribution", write={"gconfig.top_p": "1.0", "gconfig.top_k": 100_000_000}),
    KnobMapping("one_temperature",
        write={"gconfig.temperature": "1.0", "actor.temperature": "1.0"}),
    nothing_to_set("processed_logprobs", "SGLang returns processed log-probabilities by default"),
    KnobMapping("no_prefix_cache", "vllm.no_enable_prefix_caching", write=True,
        note="or sglang.disable_radix_cache=true"),
    KnobMapping("small_micro_batch", "actor.mb_spec.max_tokens_per_mb",
        write="<current value / 2>", note="at least the longest prompt and response together"),
    KnobMapping("gradient_checkpointing", "actor.gradient_checkpointing"),
    KnobMapping("sampler_memory", "sglang.mem_fraction_static", write=0.7,
        note="or vllm.gpu_memory_utilization; only if the sampler shares the GPUs"),
    unsupported("balanced_routers", "train with a lower learning rate instead"),
)

KNOBS = KnobTable(
    title="AReaL",
    mappings=_MAPPINGS,
    engine_settings=_ENGINE_SETTINGS,
    methods=METHODS,
    facts=FACTS,
    defaults=DEFAULTS,
    checkpoint_interval="saver.freq_steps",
)

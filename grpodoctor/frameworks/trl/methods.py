"""Published methods and facts about the configuration in TRL's arguments, checked against 1.16."""

from __future__ import annotations

from grpodoctor.frameworks.adam_settings import adam, default_adam
from grpodoctor.frameworks.combined_settings import count_only
from grpodoctor.frameworks.knob_mapping import KnobMapping
from grpodoctor.frameworks.written_settings import (
    Lines,
    NothingToSet,
    Option,
    Raw,
    SettingLine,
    Settings,
    Unsupported,
    WithNote,
    format_setting,
)
from grpodoctor.vocabulary.knobs import Setting

_MODE = "vllm_importance_sampling_mode"
_CORRECTION = "vllm_importance_sampling_correction"
_VESPO = "VESPO's weight contains the ratio to the sampler"
_VLLM = "takes effect only with use_vllm=True"
_OWN_DENOMINATORS = {
    "cispo": "token-mean",
    "luspo": "sequence-mean-token-sum",
    "sapo": "sequence-mean",
    "vespo": "token-mean",
}
_LOSS_TYPES = {"sequence-mean": "grpo", "token-mean": "dapo", "constant": "dr_grpo"}
_CALL = "get_repetition_penalty_reward(ngram_size=3, max_penalty=-1.0)"


def _aggregation(
    setting: Setting, knobs: Settings
) -> tuple[SettingLine, ...] | NothingToSet | Unsupported:
    loss = knobs.get("loss")
    if own := _OWN_DENOMINATORS.get(str(loss)):
        return NothingToSet(f'loss_type="{loss}" has its own denominator, {own}')
    if setting not in _LOSS_TYPES:
        return Unsupported('use loss_type="dapo", the mean over all tokens of the batch')
    note = (
        'changes only the denominator; Dr. GRPO also requires scale_rewards="none"'
        if setting == "constant"
        else ""
    )
    return (SettingLine("loss_type", f'"{_LOSS_TYPES[str(setting)]}"', note),)


def clip_high(setting: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    """`epsilon_high`, which is the largest weight itself with CISPO."""
    if knobs.get("loss") == "cispo" and isinstance(setting, int | float):
        value, note = 1 + setting, "the largest weight, not a distance from 1"
        return (SettingLine("epsilon_high", format_setting(float(value)), note),)
    return (SettingLine("epsilon_high", format_setting(setting)),)


def _no_correction(_: Setting, knobs: Settings) -> Lines | NothingToSet:
    if knobs.get("loss") == "vespo":
        return NothingToSet(f"no second correction: {_VESPO}")
    return {_CORRECTION: False}


def _read_weight_cap(setting: Setting, settings: Settings) -> Setting | None:
    return setting if settings.get("loss_type") == "cispo" else None


def _read_response_ratio(setting: Setting, settings: Settings) -> Setting | None:
    return setting == "sequence" and settings.get("loss_type", "dapo") in ("dapo", "bnpo")


def _read_loss_of_level(setting: Setting, settings: Settings) -> Setting | None:
    """The ratio of whole responses makes GSPO of the losses with PPO's clip."""
    kind = settings.get("loss_type", "dapo")
    return "gspo" if setting == "sequence" and kind in ("grpo", "bnpo", "dr_grpo", "dapo") else None


def _read_correction(setting: Setting, settings: Settings) -> Setting | None:
    if settings.get(_CORRECTION) is False or settings.get("use_vllm") is False:
        return "none"
    if setting == "token_mask" and settings.get("vllm_importance_sampling_clip_min"):
        return "icepop"
    names = {
        "token_truncate": "tis_token",
        "sequence_truncate": "tis_sequence",
        "token_mask": "mis_token",
        "sequence_mask": "mis_sequence",
    }
    return names.get(str(setting))


def read_responses(setting: Setting, settings: Settings) -> Setting | None:
    """Responses of one process in a generation, unless the config says how many all have."""
    steps = settings.get("steps_per_generation") or settings.get("gradient_accumulation_steps", 1)
    if settings.get("generation_batch_size") or not isinstance(setting, int):
        return None
    return setting * steps if isinstance(steps, int) else None


def read_sampler_apart(setting: Setting, settings: Settings) -> Setting | None:
    """Whether vLLM may run as a server: `vllm_mode` was "server" by default before 1.0."""
    return setting is True and settings.get("vllm_mode") != "colocate"


def _read_greedy(_: Setting, settings: Settings) -> Setting | None:
    """Whether the sampler takes the most likely tokens."""
    own = settings.get("generation_kwargs.temperature", settings.get("temperature"))
    return settings.get("generation_kwargs.do_sample") is False or own == 0


_LORA_DEFAULT = 16
"""The default of `lora_r` in TRL's `ModelConfig`."""


def _read_rank(_: Setting, settings: Settings) -> Setting | None:
    """The rank of a config for TRL's scripts, which name the model; 0 trains all weights.

    These are the arguments of the script, not of the trainer: a config without them says nothing.
    """
    if "use_peft" in settings and not settings["use_peft"]:
        return 0
    if "use_peft" in settings or any(key.startswith("lora_") for key in settings):
        return settings.get("lora_r", _LORA_DEFAULT)
    return None if any("peft" in key for key in settings if key != "use_peft") else 0


def _read_evaluation(setting: Setting, settings: Settings) -> Setting | None:
    """Steps between evaluations, if these are counted in steps and not as a share of the run."""
    in_steps = "steps" in (settings.get("eval_strategy"), settings.get("evaluation_strategy"))
    return count_only(setting, settings) if in_steps else None


METHODS = (
    default_adam("adam_beta1", "adam_beta2", "adam_epsilon"),
    KnobMapping(
        "kl_estimator",
        values={"k3": NothingToSet("TRL always uses k3")},
        write=Unsupported("the estimator is always k3"),
    ),
    KnobMapping(
        "no_kl_in_reward", write=NothingToSet("beta of GRPOTrainer is a weight in the loss only")
    ),
    KnobMapping(
        "kl_in_reward",
        write=Unsupported("beta is a weight in the loss; RLOOTrainer subtracts k1 from the reward"),
    ),
    KnobMapping(
        "loss",
        values={
            "luspo": {"loss_type": "luspo", "importance_sampling_level": "sequence"},
            "gspo": {
                "importance_sampling_level": WithNote("sequence", 'also requires loss_type="grpo"')
            },
            "cispo": {"loss_type": "cispo"},
            "sapo": {
                "loss_type": "sapo",
                "sapo_temperature_pos": Option("tau_positive", 1.0),
                "sapo_temperature_neg": Option("tau_negative", 1.05),
            },
            "vespo": {
                "loss_type": "vespo",
                "vespo_k_pos": Option("vespo_k_positive", 2.0),
                "vespo_lambda_pos": Option("vespo_lambda_positive", 3.0),
                "vespo_k_neg": Option("vespo_k_negative", 3.0),
                "vespo_lambda_neg": Option("vespo_lambda_negative", 2.0),
                _CORRECTION: WithNote(True, _VESPO),
                _MODE: WithNote("token_truncate", "with vLLM, VESPO requires a per-token mode"),
            },
            "gmpo": Unsupported("use GMPOTrainer and GMPOConfig of trl.experimental.gmpo"),
        },
    ),
    KnobMapping("clip_high", write=clip_high),
    KnobMapping(
        "aggregation",
        values=dict.fromkeys(_LOSS_TYPES, _aggregation),
        write=_aggregation,
        read={kind: name for name, kind in _LOSS_TYPES.items()},
    ),
    KnobMapping(
        "advantage",
        values={
            "leave_one_out": Unsupported("use RLOOTrainer and RLOOConfig"),
            "batch_std": "batch",
            "gdpo": {"multi_objective_aggregation": "normalize_then_sum"},
        },
    ),
    KnobMapping(
        "correction",
        read=_read_correction,
        values={
            "none": _no_correction,
            "error_mask": {
                "off_policy_mask_threshold": WithNote(
                    0.5, "masks only negative advantages, TRL's nearest measure"
                )
            },
            "mis_token": {_CORRECTION: WithNote(True, _VLLM), _MODE: "token_mask"},
            "mis_sequence": {_CORRECTION: WithNote(True, _VLLM), _MODE: "sequence_mask"},
            "icepop": {
                _CORRECTION: WithNote(True, _VLLM),
                _MODE: "token_mask",
                "vllm_importance_sampling_clip_min": 0.5,
                "vllm_importance_sampling_clip_max": 5.0,
            },
        },
    ),
    KnobMapping(
        "dynamic_sampling",
        values={True: Unsupported("drop prompts that are always or never solved from the dataset")},
    ),
    KnobMapping(
        "drop_failed_rollouts",
        write=NothingToSet(
            "return None as the reward of a failed rollout: since 1.16 it has no advantage"
        ),
    ),
    KnobMapping(
        "float32_weights",
        write={"model_init_kwargs": Raw('{"dtype": "float32"}'), "bf16": True},
    ),
    KnobMapping("forking_tokens", "top_entropy_quantile"),
    KnobMapping(
        "mask_tool_tokens",
        write=NothingToSet("TRL masks tool results; a rollout_func must return env_mask"),
    ),
    KnobMapping("no_repetition_penalty", "repetition_penalty", write=1.0),
    KnobMapping("pass_rate_filter", write=Unsupported("filter train_dataset before the run")),
    KnobMapping(
        "repetition_penalty",
        "reward_funcs",
        write=Raw(f"[..., {_CALL}]"),
        note="import it from trl.rewards",
    ),
    KnobMapping("router_loss", "router_aux_loss_coef", write=Raw("0.0")),
    KnobMapping(
        "staleness_limit",
        write=NothingToSet(
            "GRPOTrainer samples before every batch; AsyncGRPOConfig has max_staleness=1"
        ),
    ),
)

FACTS = (
    KnobMapping("weight_cap", "epsilon_high", read=_read_weight_cap),
    KnobMapping("loss", "importance_sampling_level", read=_read_loss_of_level),
    # What `generation_kwargs` holds takes precedence over the field of the same name.
    KnobMapping("top_p", "generation_kwargs.top_p", other_keys=("top_p",)),
    KnobMapping("top_k", "generation_kwargs.top_k", other_keys=("top_k",)),
    KnobMapping("min_p", "generation_kwargs.min_p", other_keys=("min_p",)),
    KnobMapping(
        "repetition_penalty",
        "generation_kwargs.repetition_penalty",
        other_keys=("repetition_penalty",),
    ),
    KnobMapping("blocked_ngrams", "generation_kwargs.no_repeat_ngram_size"),
    KnobMapping(
        "greedy_sampling",
        "generation_kwargs.do_sample",
        other_keys=("generation_kwargs.temperature", "temperature"),
        read=_read_greedy,
    ),
    KnobMapping(
        "least_length",
        "generation_kwargs.min_new_tokens",
        other_keys=("generation_kwargs.min_tokens",),
    ),
    KnobMapping("temperature", "generation_kwargs.temperature"),
    # The learner divides its logits by the field, and the sampler by what `generation_kwargs` has.
    KnobMapping("learner_temperature", "temperature"),
    KnobMapping("kl_in_loss", "beta"),
    KnobMapping(
        "sequence_ratio_weights_tokens", "importance_sampling_level", read=_read_response_ratio
    ),
    KnobMapping("max_prompt_length", "max_prompt_length"),
    KnobMapping("context_length", "vllm_max_model_length"),
    KnobMapping("dual_clip", "delta"),
    KnobMapping("lora_rank", "use_peft", other_keys=("model_name_or_path",), read=_read_rank),
    KnobMapping("router_loss", "router_aux_loss_coef"),
    KnobMapping("total_steps", "max_steps", read=count_only),
    KnobMapping("epochs", "num_train_epochs"),
    KnobMapping("shuffled_data", "shuffle_dataset"),
    KnobMapping("removes_columns", "remove_unused_columns"),
    KnobMapping("evaluation_interval", "eval_steps", read=_read_evaluation),
    KnobMapping("warmup_steps", "warmup_steps", read=count_only),
    KnobMapping("warmup_share", "warmup_ratio"),
    *adam("adam_beta1", "adam_beta2", "adam_epsilon"),
    KnobMapping("batch_responses", "generation_batch_size", read=count_only),
    KnobMapping("responses_per_process", "per_device_train_batch_size", read=read_responses),
    KnobMapping("sampler_apart", "use_vllm", read=read_sampler_apart),
)

DEFAULTS: Settings = {
    "shuffled_data": True,
    "clip_low": 0.2,
    "clip_high": 0.2,
    "aggregation": "token-mean",
    "advantage": "group",
    "temperature": 1.0,
    "group_size": 8,
    "max_length": 256,
}
"""The defaults of GRPOConfig 1.16."""

"""Published methods and facts about the configuration in AReaL's settings, checked against 2.0."""

from __future__ import annotations

from grpodoctor.frameworks.adam_settings import adam, default_adam
from grpodoctor.frameworks.adapter_rank import rank_if_enabled
from grpodoctor.frameworks.knob_mapping import KnobMapping
from grpodoctor.frameworks.sampler_precision import sampler_quantized
from grpodoctor.frameworks.written_settings import (
    Lines,
    NothingToSet,
    Option,
    Settings,
    Unsupported,
    WithNote,
)
from grpodoctor.vocabulary.knobs import Setting

_REJECTION = "actor.rejection_sampling"


def _mask(level: str, upper: float, lower: float | None = None, agg: str = "mean") -> Lines:
    lines: dict[str, Setting] = {
        "actor.use_decoupled_loss": True,
        f"{_REJECTION}.level": level,
        f"{_REJECTION}.action": "mask",
        f"{_REJECTION}.metric": "ratio",
        f"{_REJECTION}.upper": upper,
    }
    if level == "sequence":
        lines[f"{_REJECTION}.agg"] = agg
    return lines if lower is None else {**lines, f"{_REJECTION}.lower": lower}


def _read_old_logprobs(setting: Setting, settings: Settings) -> Setting | None:
    """The sampler's log-probabilities are used unless they are recomputed or decoupled."""
    is_decoupled = settings.get("actor.use_decoupled_loss") is True
    return "recompute" if setting is True or is_decoupled else "sampler"


def _read_correction(setting: Setting, _: Settings) -> Setting | None:
    return {"clamp": "tis_token", "mask": "mis_token"}.get(str(setting))


METHODS = (
    default_adam("actor.optimizer.beta1", "actor.optimizer.beta2", "actor.optimizer.eps"),
    KnobMapping("gae_lambda", "actor.gae_lambda"),
    KnobMapping("value_clip", "critic.eps_clip"),
    KnobMapping(
        "whitened_advantages",
        values={True: {"actor.adv_norm.mean_level": "batch", "actor.adv_norm.std_level": "batch"}},
    ),
    KnobMapping("kl_estimator", "actor.kl_estimator"),
    KnobMapping("no_kl_in_reward", "actor.kl_ctl", write=0.0),
    KnobMapping("kl_in_reward", "actor.kl_ctl", enabled_by={"actor.kl_estimator": "k1"}),
    KnobMapping(
        "loss",
        values={
            "m2po": {"actor.m2_threshold": Option("second_moment_limit", 0.04)},
            "cispo": {"actor.use_cispo_loss": True},
            "sapo": {
                "actor.use_sapo_loss": True,
                "actor.use_decoupled_loss": False,
                "actor.sapo_tau_pos": Option("tau_positive", 1.0),
                "actor.sapo_tau_neg": Option("tau_negative", 1.05),
            },
        },
    ),
    KnobMapping(
        "advantage",
        values={
            "gae": {
                "actor.reward_norm": WithNote(
                    "null", "AReaL always estimates with GAE; add a section critic"
                ),
            },
            "batch_std": {
                "actor.reward_norm.mean_level": "group",
                "actor.reward_norm.std_level": "batch",
            },
            "leave_one_out": {
                "actor.reward_norm.mean_level": "group",
                "actor.reward_norm.mean_leave1out": True,
                "actor.reward_norm.std_level": "null",
            },
        },
    ),
    KnobMapping(
        "correction",
        values={
            "error_mask": _mask("sequence", 2.0, 0.5),
            "mis_token": _mask("token", 2.0),
            "mis_sequence": _mask("sequence", 2.0, agg="sum"),
            "geo_mask": _mask("sequence", 1.002, 0.999),
            "icepop": _mask("token", 5.0, 0.5),
        },
    ),
    KnobMapping(
        "drop_failed_rollouts",
        write=NothingToSet("return None from the workflow: AReaL then drops the trajectory"),
    ),
    KnobMapping("float32_weights", "actor.dtype", write="float32"),
    KnobMapping(
        "mask_tool_tokens",
        write=Unsupported("return loss_mask with zeros for them from your workflow"),
    ),
    KnobMapping("pass_rate_filter", write=Unsupported("filter the dataset before the run")),
    KnobMapping("repetition_penalty", write=Unsupported("add it in your own reward function")),
    KnobMapping("staleness_limit", "rollout.max_head_offpolicyness"),
)

FACTS = (
    KnobMapping("learner_temperature", "actor.temperature"),
    KnobMapping("greedy_sampling", "gconfig.greedy"),
    KnobMapping("top_p", "gconfig.top_p"),
    KnobMapping(
        # Its default, 100,000,000, samples from all tokens.
        "top_k",
        "gconfig.top_k",
        read=lambda setting, _: 0 if setting == 100_000_000 else setting,
    ),
    KnobMapping("ignores_end_token", "gconfig.ignore_eos"),
    KnobMapping("kl_in_reward", "actor.kl_ctl"),
    KnobMapping("correction", f"{_REJECTION}.action", read=_read_correction),
    KnobMapping("staleness_limit", "rollout.max_head_offpolicyness"),
    KnobMapping("old_logprobs", "actor.recompute_logprob", read=_read_old_logprobs, default=False),
    KnobMapping(
        "sequence_ratio_weights_tokens",
        "actor.importance_sampling_level",
        read={
            "sequence": True,
            "token": False,
        },
    ),
    KnobMapping("overlong_buffer", "actor.overlong_tokens"),
    KnobMapping("context_length", "vllm.max_model_len"),
    sampler_quantized("vllm.quantization", "sglang.quantization"),
    KnobMapping("dual_clip", "actor.c_clip"),
    *adam("actor.optimizer.beta1", "actor.optimizer.beta2", "actor.optimizer.eps"),
    KnobMapping(
        "lora_rank",
        "actor.lora_rank",
        read=rank_if_enabled({"actor.use_lora": "actor.lora_rank"}, 32),
        default=0,
    ),
)

DEFAULTS: Settings = {
    "clip_low": 0.2,
    "clip_high": 0.2,
    "aggregation": "token-mean",
    "old_logprobs": "sampler",
}
"""Defaults of areal/api/cli_args.py."""

"""Published methods and facts about the configuration in open-instruct's flags, main after v0.3."""

from __future__ import annotations

from grpodoctor.frameworks.adapter_rank import rank_if_enabled
from grpodoctor.frameworks.knob_mapping import KnobMapping
from grpodoctor.frameworks.sampler_precision import sampler_quantized
from grpodoctor.frameworks.written_settings import (
    NothingToSet,
    SettingLine,
    Settings,
    Unsupported,
    format_setting,
)
from grpodoctor.vocabulary.knobs import Setting


def _mask(low: float, high: float, *, per_response: bool) -> dict[str, bool | float]:
    return {
        "use_rho_correction": True,
        "rho_mask_lower_bound": low,
        "rho_mask_upper_bound": high,
        "rho_mask_sequence_level": per_response,
    }


def _read_correction(setting: Setting, settings: Settings) -> Setting | None:
    if setting is not True:
        return "none"
    if not settings.get("rho_mask_upper_bound", 0):
        return "tis_token"
    if settings.get("rho_mask_sequence_level") is True:
        return "geo_mask"
    return "icepop" if settings.get("rho_mask_lower_bound", 0) else "mis_token"


def _cap(setting: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    value = "0" if knobs.get("correction") == "icepop" else format_setting(setting)
    return (SettingLine("--rho_clamp_upper_bound", value),)


METHODS = (
    KnobMapping("kl_estimator", "kl_estimator", values={"k1": 0, "k2": 1, "k3": 2}),
    KnobMapping("no_kl_in_reward", write=NothingToSet("--beta is a weight in the loss only")),
    KnobMapping("kl_in_reward", write=Unsupported("--beta is a weight in the loss")),
    KnobMapping("loss", values={"cispo": "cispo"}),
    KnobMapping(
        "correction",
        read=_read_correction,
        values={
            "error_mask": _mask(0.5, 2.0, per_response=True),
            "mis_token": _mask(0.0, 2.0, per_response=False),
            "geo_mask": _mask(0.999, 1.002, per_response=True),
            "icepop": {**_mask(0.5, 5.0, per_response=False), "rho_clamp_upper_bound": 0.0},
        },
    ),
    KnobMapping("correction_cap", write=_cap),
    KnobMapping(
        "drop_failed_rollouts", write=Unsupported("retry them in your own tool implementation")
    ),
    KnobMapping(
        "float32_weights",
        write=NothingToSet("DeepSpeed keeps a float32 copy; grpo.py takes --model_dtype float32"),
    ),
    KnobMapping("mask_tool_tokens", "mask_tool_use", write=True, note="the default"),
    KnobMapping(
        "pass_rate_filter",
        "no_resampling_pass_rate",
        write=0.8,
        note="retires solved prompts; filter hard ones from the dataset",
    ),
    KnobMapping("repetition_penalty", write=Unsupported("add it in your own verifier")),
    KnobMapping("staleness_limit", "async_steps"),
)

FACTS = (
    KnobMapping("top_p", "vllm_top_p"),
    KnobMapping("greedy_sampling", "temperature", read=lambda setting, _: setting == 0),
    KnobMapping("kl_in_loss", "beta"),
    KnobMapping(
        "kl_estimator", "kl_estimator", read={0: "k1", 1: "k2", 2: "k3", 3: "k3"}, default=2
    ),
    KnobMapping("reference_loaded", "load_ref_policy"),
    sampler_quantized(),
    KnobMapping("max_prompt_length", "max_prompt_token_length"),
    KnobMapping(
        "lora_rank", "use_peft", read=rank_if_enabled({"use_peft": "lora_r"}, 16), default=False
    ),
    KnobMapping("staleness_limit", "async_steps"),
    KnobMapping("old_logprobs", "use_vllm_logprobs", read={True: "sampler", False: "recompute"}),
    KnobMapping("tool_tokens_in_loss", "mask_tool_use", read={True: False, False: True}),
)

DEFAULTS: Settings = {
    "clip_low": 0.2,
    "clip_high": 0.272,
    "aggregation": "token-mean",
    "advantage": "centred",
    "correction": "tis_token",
}
"""Defaults of open_instruct/grpo_utils.py and data_loader.py."""

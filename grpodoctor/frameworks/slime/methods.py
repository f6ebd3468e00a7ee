"""Published methods and facts about the configuration in slime's flags, main after v0.3.1."""

from __future__ import annotations

from grpodoctor.frameworks.adam_settings import adam, default_adam
from grpodoctor.frameworks.combined_settings import count_only, product_with
from grpodoctor.frameworks.knob_mapping import KnobMapping
from grpodoctor.frameworks.sampler_precision import sampler_quantized
from grpodoctor.frameworks.written_settings import (
    NothingToSet,
    SettingLine,
    Settings,
    Unsupported,
    WithNote,
)
from grpodoctor.vocabulary.knobs import Setting

_HELPER = "slime.backends.megatron_utils.loss.icepop_function"
_MASKS = Unsupported(
    "set --custom-tis-function-path to compute_mis_weights_with_cp of slime's "
    "examples/train_infer_mismatch_helper/mis.py, and its mode in the helper's config"
)
_REWARD = Unsupported("add it to your own reward function (--custom-rm-path)")


def _read_kl_in_loss(setting: Setting, settings: Settings) -> Setting | None:
    return setting if settings.get("use_kl_loss") is True else 0.0


def _read_reference(setting: Setting, _: Settings) -> Setting | None:
    return bool(setting)


def _read_estimator(setting: Setting, settings: Settings) -> Setting | None:
    names = {"k1": "k1", "k2": "k2", "k3": "k3", "low_var_kl": "k3"}
    is_used = settings.get("use_kl_loss") is True
    return names.get(str(setting)) if is_used else None


def _read_correction(setting: Setting, settings: Settings) -> Setting | None:
    if setting is not True:
        return "none"
    custom = settings.get("custom_tis_function_path", "")
    return {"": "tis_token", _HELPER: "icepop"}.get(str(custom))


_ESTIMATORS = {
    "gae": "ppo",
    "reinforce_plus_plus_baseline": "reinforce_plus_plus_baseline",
}
"""Estimators with PPO's clip, besides that of GRPO."""


def _clipped_loss(_: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    """The key holds the estimator as well; all estimators but two have PPO's clip."""
    estimator = _ESTIMATORS.get(str(knobs.get("advantage")), "grpo")
    return (SettingLine("--advantage-estimator", estimator),)


METHODS = (
    default_adam("adam_beta1", "adam_beta2", "adam_eps"),
    KnobMapping("gae_lambda", "lambd"),
    KnobMapping("value_clip", "value_clip"),
    KnobMapping("whitened_advantages", "normalize_advantages"),
    KnobMapping("kl_estimator", "kl_loss_type", values={"k3": "low_var_kl"}),
    KnobMapping("no_kl_in_reward", "kl_coef", write=0.0),
    KnobMapping(
        "kl_in_reward",
        "kl_coef",
        enabled_by={"use_kl_loss": False, "kl_loss_type": "k1"},
    ),
    KnobMapping(
        "advantage",
        values={
            name: {"advantage_estimator": estimator} for name, estimator in _ESTIMATORS.items()
        },
    ),
    KnobMapping(
        "loss", values={"cispo": "cispo", "ppo_clip": _clipped_loss}, read={"grpo": "ppo_clip"}
    ),
    KnobMapping(
        "correction",
        values={
            "error_mask": {
                "use_opsm": True,
                "opsm_delta": WithNote(
                    0.1, "masks only negative advantages, slime's nearest measure"
                ),
            },
            "icepop": {
                "use_tis": True,
                "tis_clip_low": 0.5,
                "tis_clip": 5,
                "custom_tis_function_path": _HELPER,
            },
            "mis_token": _MASKS,
            "mis_sequence": _MASKS,
            "geo_mask": _MASKS,
        },
        read=_read_correction,
    ),
    KnobMapping(
        "drop_failed_rollouts",
        write=Unsupported("set remove_sample in your own --rollout-sample-filter-path"),
    ),
    KnobMapping(
        "float32_weights", write=NothingToSet("Megatron keeps a float32 copy of the weights")
    ),
    KnobMapping(
        "mask_tool_tokens",
        write=Unsupported(
            "return loss_mask with zeros for them in your --custom-generate-function"
        ),
    ),
    KnobMapping("pass_rate_filter", write=Unsupported("filter --prompt-data before the run")),
    KnobMapping("repetition_penalty", write=_REWARD),
    KnobMapping("router_loss", "moe_aux_loss_coeff"),
    KnobMapping(
        "staleness_limit",
        write=NothingToSet("train.py is synchronous; train_async.py samples one step ahead"),
    ),
)

FACTS = (
    KnobMapping(
        "batch_responses",
        "rollout_batch_size",
        read=product_with("n_samples_per_prompt", default=1),
    ),
    KnobMapping("update_responses", "global_batch_size", read=count_only),
    KnobMapping("top_p", "rollout_top_p"),
    KnobMapping("top_k", "rollout_top_k"),
    KnobMapping("greedy_sampling", "rollout_temperature", read=lambda setting, _: setting == 0),
    KnobMapping("kl_in_reward", "kl_coef"),
    KnobMapping("kl_in_loss", "kl_loss_coef", read=_read_kl_in_loss),
    KnobMapping("kl_estimator", "kl_loss_type", read=_read_estimator, default="k1"),
    KnobMapping("reference_loaded", "ref_load", read=_read_reference),
    KnobMapping("max_prompt_length", "rollout_max_prompt_len"),
    KnobMapping("context_length", "rollout_max_context_len"),
    KnobMapping("router_loss", "moe_aux_loss_coeff"),
    KnobMapping("dual_clip", "eps_clip_c"),
    *adam("adam_beta1", "adam_beta2", "adam_eps"),
    sampler_quantized("sglang_quantization"),
    KnobMapping("lora_rank", "lora_rank", default=0),
    KnobMapping("old_logprobs", "use_rollout_logprobs", read={True: "sampler", False: "recompute"}),
)

DEFAULTS: Settings = {"clip_low": 0.2, "clip_high": 0.2}
"""Defaults of slime/utils/arguments.py."""

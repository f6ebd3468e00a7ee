"""Published methods and facts about the configuration in SkyRL's settings, August 2026."""

from __future__ import annotations

from grpodoctor.frameworks.adam_settings import adam_betas, default_adam_betas
from grpodoctor.frameworks.combined_settings import count_only, is_count, product_with
from grpodoctor.frameworks.knob_mapping import KnobMapping, Reader
from grpodoctor.frameworks.sampler_precision import sampler_quantized
from grpodoctor.frameworks.written_settings import (
    NothingToSet,
    Option,
    Raw,
    SettingLine,
    Settings,
    Unsupported,
    WithNote,
    Writer,
    format_setting,
)
from grpodoctor.vocabulary.knobs import Setting

_ALGORITHM = "trainer.algorithm"
_OFF_POLICY = f"{_ALGORITHM}.off_policy_correction"
_SAMPLING = "generator.sampling_params"


def _limit(bound: Setting, _: Settings) -> tuple[SettingLine, ...]:
    return tuple(
        SettingLine(f"{_ALGORITHM}.dppo.delta_{side}", format_setting(bound))
        for side in ("low", "high")
    )


def _dppo(kind: str, usual_bound: float) -> Writer:
    def write(_: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
        return (
            SettingLine(f"{_ALGORITHM}.policy_loss_type", "dppo"),
            SettingLine(f"{_ALGORITHM}.dppo.dppo_type", kind),
            *_limit(knobs.get("divergence_limit", usual_bound), knobs),
        )

    return write


def _clip(side: str) -> Writer:
    def write(setting: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
        is_cispo = knobs.get("loss") == "cispo"
        key = f"cispo.cispo_eps_clip_{side}" if is_cispo else f"eps_clip_{side}"
        return (SettingLine(f"{_ALGORITHM}.{key}", format_setting(setting)),)

    return write


def _cap(setting: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    keys = {
        "tis_sequence": "sequence_tis_ratio_clip_high",
        "mis_sequence": "product_mask_high",
        "mis_token": "token_mask_is_threshold_high",
        "icepop": "token_mask_is_threshold_high",
    }
    key = keys.get(str(knobs.get("correction")), "token_tis_ratio_clip_high")
    value = "5" if knobs.get("correction") == "icepop" else format_setting(setting)
    return (SettingLine(f"{_OFF_POLICY}.{key}", value),)


def _read_kl(place: str, default: bool) -> Reader:
    def read(setting: Setting, settings: Settings) -> Setting | None:
        is_used = settings.get(f"{_ALGORITHM}.{place}", default) is True
        return setting if is_used else 0.0

    return read


def _read_loss(setting: Setting, settings: Settings) -> Setting | None:
    names = {"regular": "ppo_clip", "dual_clip": "ppo_clip", "dppo": "dppo_binary_tv"}
    if setting == "dppo" and settings.get(f"{_ALGORITHM}.dppo.dppo_type") == "binary_kl":
        return "dppo_binary_kl"
    return names.get(str(setting), setting)


def _read_correction(setting: Setting, settings: Settings) -> Setting | None:
    """The weight's level and the mask that is applied in addition."""
    mask = settings.get(f"{_OFF_POLICY}.sequence_mask_metric", "none")
    low = settings.get(f"{_OFF_POLICY}.token_mask_is_threshold_low")
    if setting == "token" and isinstance(low, int | float):
        return "icepop" if low > 0 else "mis_token"
    names = {
        ("token", "none"): "tis_token",
        ("sequence", "none"): "tis_sequence",
        ("sequence", "product"): "mis_sequence",
        ("token", "geometric"): "geo_mask",
    }
    return names.get((str(setting), str(mask)))


METHODS = (
    default_adam_betas("trainer.policy.optimizer_config.adam_betas"),
    KnobMapping("gae_lambda", f"{_ALGORITHM}.lambd"),
    KnobMapping("value_clip", f"{_ALGORITHM}.value_clip"),
    KnobMapping("whitened_advantages", write=NothingToSet("SkyRL always whitens GAE advantages")),
    KnobMapping("divergence_limit", write=_limit),
    KnobMapping("kl_estimator", f"{_ALGORITHM}.kl_estimator_type"),
    KnobMapping("no_kl_in_reward", f"{_ALGORITHM}.use_kl_in_reward", write=False),
    KnobMapping(
        "kl_in_reward",
        f"{_ALGORITHM}.kl_loss_coef",
        enabled_by={
            f"{_ALGORITHM}.use_kl_loss": False,
            f"{_ALGORITHM}.use_kl_in_reward": True,
            f"{_ALGORITHM}.kl_estimator_type": "k1",
        },
    ),
    KnobMapping(
        "loss",
        read=_read_loss,
        values={
            "cispo": "cispo",
            "sapo": {
                f"{_ALGORITHM}.policy_loss_type": "sapo",
                f"{_ALGORITHM}.sapo.tau_pos": Option("tau_positive", 1.0),
                f"{_ALGORITHM}.sapo.tau_neg": Option("tau_negative", 1.05),
            },
            "clip_cov": "clip_cov",
            "kl_cov": {
                f"{_ALGORITHM}.policy_loss_type": "kl_cov",
                f"{_ALGORITHM}.kl_cov.kl_cov_frac": 0.002,
            },
            "dppo_binary_tv": _dppo("binary_tv", 0.15),
            "dppo_binary_kl": _dppo("binary_kl", 0.05),
        },
    ),
    KnobMapping("clip_low", write=_clip("low")),
    KnobMapping("clip_high", write=_clip("high")),
    KnobMapping(
        "advantage",
        values={
            "max_rl": {f"{_ALGORITHM}.advantage_estimator": "maxrl"},
            "leave_one_out": {f"{_ALGORITHM}.advantage_estimator": "rloo"},
            "gae": {f"{_ALGORITHM}.advantage_estimator": "gae"},
        },
    ),
    KnobMapping(
        "correction",
        read=_read_correction,
        values={
            "error_mask": {
                f"{_OFF_POLICY}.outlier_token_is_threshold_low": WithNote(
                    Raw("1e-4"), "masks responses with one extreme token, SkyRL's nearest measure"
                ),
                f"{_OFF_POLICY}.outlier_token_is_threshold_high": 100,
            },
            "mis_token": {
                f"{_OFF_POLICY}.tis_ratio_type": "token",
                f"{_OFF_POLICY}.token_mask_is_threshold_low": 0.0,
                f"{_OFF_POLICY}.token_mask_is_threshold_high": 2.0,
            },
            "mis_sequence": {
                f"{_OFF_POLICY}.tis_ratio_type": "sequence",
                f"{_OFF_POLICY}.sequence_mask_metric": "product",
            },
            "geo_mask": {
                f"{_OFF_POLICY}.tis_ratio_type": "token",
                f"{_OFF_POLICY}.sequence_mask_metric": "geometric",
            },
            "icepop": {
                f"{_OFF_POLICY}.tis_ratio_type": "token",
                f"{_OFF_POLICY}.token_mask_is_threshold_low": 0.5,
                f"{_OFF_POLICY}.token_mask_is_threshold_high": 5.0,
            },
        },
    ),
    KnobMapping("correction_cap", write=_cap),
    KnobMapping(
        "drop_failed_rollouts",
        write=Unsupported("return a loss mask of zeros for them from your generator"),
    ),
    KnobMapping(
        "float32_weights",
        "trainer.policy.model_dtype",
        write=Unsupported("the FSDP backend keeps float32 weights; Megatron keeps a float32 copy"),
    ),
    KnobMapping(
        "mask_tool_tokens",
        write=NothingToSet("the gym generator masks observations; check your own generator"),
    ),
    KnobMapping("no_repetition_penalty", f"{_SAMPLING}.repetition_penalty", write=1.0),
    KnobMapping("pass_rate_filter", write=Unsupported("filter data.train_data before the run")),
    KnobMapping("repetition_penalty", write=Unsupported("add it in your own environment")),
    KnobMapping(
        "router_loss",
        "trainer.policy.megatron_config.transformer_config_kwargs.moe_aux_loss_coeff",
        write=Raw("0.0"),
    ),
    KnobMapping(
        "staleness_limit",
        "trainer.fully_async.max_staleness_steps",
        note="only in fully asynchronous training",
    ),
)


def _read_devices(setting: Setting, settings: Settings) -> Setting | None:
    """Data-parallel devices of all nodes.

    Unknown with Megatron, where other keys divide them further, and if they cannot share an update
    evenly: SkyRL then fills the update up with dummy sequences (MeshDispatch.stage_chunks).
    """
    if settings.get("trainer.strategy") == "megatron":
        return None
    divisor = "trainer.policy.sequence_parallel_size"
    devices = product_with("trainer.placement.policy_num_nodes", default=1, per=(divisor,))(
        setting, settings
    )
    update = product_with("trainer.policy_mini_batch_size")(
        settings.get("generator.n_samples_per_prompt", 0), settings
    )
    is_even = is_count(devices) and is_count(update) and not update % devices
    return devices if is_even else None


FACTS = (
    KnobMapping("epochs", "trainer.epochs"),
    KnobMapping("learner_temperature", f"{_ALGORITHM}.temperature"),
    KnobMapping("top_p", f"{_SAMPLING}.top_p"),
    KnobMapping("top_k", f"{_SAMPLING}.top_k"),
    KnobMapping("min_p", f"{_SAMPLING}.min_p"),
    KnobMapping("repetition_penalty", f"{_SAMPLING}.repetition_penalty"),
    KnobMapping("greedy_sampling", f"{_SAMPLING}.temperature", read=lambda value, _: value == 0),
    KnobMapping(
        "kl_in_reward",
        f"{_ALGORITHM}.kl_loss_coef",
        read=_read_kl("use_kl_in_reward", default=False),
        default=0.001,
    ),
    KnobMapping(
        "kl_in_loss",
        f"{_ALGORITHM}.kl_loss_coef",
        read=_read_kl("use_kl_loss", default=True),
        default=0.001,
    ),
    KnobMapping("kl_estimator", f"{_ALGORITHM}.kl_estimator_type"),
    KnobMapping("dual_clip", f"{_ALGORITHM}.clip_ratio_c"),
    KnobMapping("max_prompt_length", "trainer.max_prompt_length"),
    KnobMapping(
        "batch_responses",
        "trainer.train_batch_size",
        read=product_with("generator.n_samples_per_prompt"),
    ),
    KnobMapping(
        "update_responses",
        "trainer.policy_mini_batch_size",
        read=product_with("generator.n_samples_per_prompt"),
    ),
    KnobMapping(
        "learner_devices",
        "trainer.placement.policy_num_gpus_per_node",
        read=_read_devices,
    ),
    KnobMapping("device_responses", "trainer.micro_train_batch_size_per_gpu"),
    KnobMapping(
        "warmup_steps", "trainer.policy.optimizer_config.num_warmup_steps", read=count_only
    ),
    *adam_betas("trainer.policy.optimizer_config.adam_betas"),
    KnobMapping("context_length", "generator.inference_engine.engine_init_kwargs.max_model_len"),
    KnobMapping("staleness_limit", "trainer.fully_async.max_staleness_steps"),
    sampler_quantized("generator.inference_engine.engine_init_kwargs.quantization"),
    KnobMapping("lora_rank", "trainer.policy.model.lora.rank", default=0),
)

DEFAULTS: Settings = {
    "clip_low": 0.2,
    "clip_high": 0.2,
    "aggregation": "token-mean",
    "advantage": "group",
}
"""Defaults of skyrl/train/config/config.py."""

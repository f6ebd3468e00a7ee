"""Published methods and facts about the configuration in verl's settings, read in v0.9.1."""

from __future__ import annotations

from grpodoctor.frameworks.adam_settings import adam_betas, default_adam_betas
from grpodoctor.frameworks.adapter_rank import rank_of_any
from grpodoctor.frameworks.combined_settings import (
    count_only,
    is_count,
    largest_count,
    product_with,
)
from grpodoctor.frameworks.knob_mapping import KnobMapping
from grpodoctor.frameworks.sampler_precision import sampler_quantized
from grpodoctor.frameworks.written_settings import (
    Lines,
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

ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"
_MODEL = "actor_rollout_ref.model"
_CORRECTION = "algorithm.rollout_correction"
_LOSS = f"{ACTOR}.policy_loss"
_SPLITS = (
    f"{ACTOR}.ulysses_sequence_parallel_size",
    f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size",
    f"{ACTOR}.megatron.context_parallel_size",
    f"{ACTOR}.veomni.ulysses_parallel_size",
    f"{ACTOR}.torchtitan.tensor_parallel_size",
)
"""Keys of the devices that share a sequence, by version and backend."""
_BACKENDS = ("megatron", "veomni", "torchtitan", "automodel")
"""Backends whose other keys divide the devices further."""
_MEGATRON = f"+{ACTOR}.megatron.override_transformer_config"
_REWARD = "in your own reward function (reward.custom_reward_function)"
_NOT_ON_SAMPLER = (
    "anchored on the old policy; algorithm.rollout_correction.bypass_mode=True anchors it on the "
    "sampler"
)


def _dppo(mode: str, usual_bound: float) -> Writer:
    def write(_: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
        return (
            SettingLine(f"{_LOSS}.loss_mode", mode, _NOT_ON_SAMPLER),
            *_limit(knobs.get("divergence_limit", usual_bound), knobs),
            SettingLine(f"{ACTOR}.clip_ratio_c", "20"),
        )

    return write


def _mask(weight: str, statistic: str, bounds: str) -> Lines:
    return {
        f"{_CORRECTION}.rollout_is": weight,
        f"{_CORRECTION}.rollout_rs": statistic,
        f"{_CORRECTION}.rollout_rs_threshold": WithNote(Raw(f'"{bounds}"'), "lower_upper"),
        f"{_ROLLOUT}.calculate_log_probs": True,
    }


def _cap(setting: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    key = f"{_CORRECTION}.rollout_is_threshold"
    if knobs.get("correction") == "icepop":
        return (SettingLine(key, '"0.5_5.0"', "lower_upper"),)
    return (SettingLine(key, format_setting(setting)),)


def _read_reward_kl(setting: Setting, settings: Settings) -> Setting | None:
    is_used = settings.get("algorithm.use_kl_in_reward") is True
    return setting if is_used else 0.0


def _read_loss_kl(setting: Setting, settings: Settings) -> Setting | None:
    return setting if settings.get(f"{ACTOR}.use_kl_loss") is True else 0.0


def _read_greedy(setting: Setting, settings: Settings) -> Setting | None:
    return setting is False or settings.get(f"{_ROLLOUT}.temperature") == 0


def _read_padded(setting: Setting, settings: Settings) -> Setting | None:
    is_constant = f"{ACTOR}.loss_scale_factor" in settings
    return setting == "seq-mean-token-sum-norm" and not is_constant


def _read_staleness(setting: Setting, settings: Settings) -> Setting | None:
    is_synchronous = settings.get("trainer.v1.trainer_mode", "sync") == "sync"
    return 0 if is_synchronous else setting


def _read_correction(setting: Setting, settings: Settings) -> Setting | None:
    statistic = settings.get(f"{_CORRECTION}.rollout_rs", "none")
    if "_" in str(settings.get(f"{_CORRECTION}.rollout_is_threshold", "")):
        return "icepop" if setting == "token" else None
    names = {
        ("token", "none"): "tis_token",
        ("sequence", "none"): "tis_sequence",
        ("token", "token_k1"): "mis_token",
        ("sequence", "seq_sum_k1"): "mis_sequence",
        ("token", "seq_mean_k1"): "geo_mask",
    }
    return names.get((str(setting), str(statistic)))


def _limit(bound: Setting, _: Settings) -> tuple[SettingLine, ...]:
    return tuple(
        SettingLine(f"{ACTOR}.clip_ratio_{side}", format_setting(bound)) for side in ("low", "high")
    )


METHODS = (
    default_adam_betas(f"{ACTOR}.optim.betas"),
    KnobMapping("divergence_limit", write=_limit),
    KnobMapping("no_kl_in_reward", "algorithm.use_kl_in_reward", write=False),
    KnobMapping(
        "kl_in_reward",
        "algorithm.kl_ctrl.kl_coef",
        enabled_by={
            f"{ACTOR}.use_kl_loss": False,
            "algorithm.use_kl_in_reward": WithNote(True, "loads the reference model"),
            "algorithm.kl_penalty": "kl",
        },
    ),
    KnobMapping(
        "kl_estimator",
        f"{ACTOR}.kl_loss_type",
        values={"k1": "k1", "k2": "mse", "k3": "low_var_kl"},
    ),
    KnobMapping(
        "loss",
        read={"gpg": "reinforce"},
        values={
            "cispo": {f"{_LOSS}.loss_mode": "cispo"},
            "luspo": {
                f"{_LOSS}.loss_mode": WithNote("gspo", "versions whose gspo has loss_agg_mode"),
                f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum",
            },
            "sapo": {
                f"{_LOSS}.loss_mode": "sapo",
                f"{ACTOR}.tau_pos": Option("tau_positive", 1.0),
                f"{ACTOR}.tau_neg": Option("tau_negative", 1.05),
            },
            "gmpo": {
                f"{_LOSS}.loss_mode": "geo_mean",
                f"{ACTOR}.clip_ratio_low": Option("log_clip", 0.4),
                f"{ACTOR}.clip_ratio_high": Option("log_clip", 0.4),
            },
            "dppo_binary_tv": _dppo("dppo_tv", 0.15),
            "dppo_binary_kl": _dppo("dppo_kl", 0.05),
            "clip_cov": {
                f"{_LOSS}.loss_mode": "clip_cov",
                f"{_LOSS}.clip_cov_ratio": 0.0002,
                f"{_LOSS}.clip_cov_lb": 1.0,
                f"{_LOSS}.clip_cov_ub": 5.0,
            },
            "kl_cov": {
                f"{_LOSS}.loss_mode": "kl_cov",
                f"{_LOSS}.kl_cov_ratio": WithNote(0.002, "0.0002 for a 32B model"),
                f"{_LOSS}.ppo_kl_coef": 1.0,
            },
            "reinforce": {f"{_LOSS}.loss_mode": WithNote("gpg", "verl's loss without a ratio")},
        },
    ),
    KnobMapping(
        "advantage",
        values={
            "reinforce_plus_plus_baseline": {
                "algorithm.adv_estimator": "reinforce_plus_plus_baseline"
            },
            "leave_one_out": {"algorithm.adv_estimator": "rloo"},
            "gdpo": {
                "algorithm.adv_estimator": "gdpo",
                "reward.reward_manager.name": "gdpo",
            },
            "gae": {"algorithm.adv_estimator": "gae"},
        },
    ),
    KnobMapping(
        "correction",
        read=_read_correction,
        values={
            "error_mask": {
                f"{_CORRECTION}.rollout_rs": "seq_mean_k3",
                f"{_CORRECTION}.rollout_rs_threshold": WithNote(
                    0.01, "mean k3 of a response, verl's nearest measure"
                ),
                f"{_ROLLOUT}.calculate_log_probs": True,
            },
            "mis_token": _mask("token", "token_k1", "0.5_2.0"),
            "mis_sequence": _mask("sequence", "seq_sum_k1", "0.5_2.0"),
            "geo_mask": _mask("token", "seq_mean_k1", "0.999_1.001"),
            "icepop": {
                f"{_CORRECTION}.rollout_is": "token",
                f"{_CORRECTION}.rollout_is_threshold": WithNote(Raw('"0.5_5.0"'), "lower_upper"),
                f"{_ROLLOUT}.calculate_log_probs": True,
            },
        },
    ),
    KnobMapping("correction_cap", values={}, write=_cap),
    KnobMapping("critic_pretraining", "trainer.critic_warmup"),
    KnobMapping("gae_lambda", "algorithm.lam"),
    KnobMapping("value_clip", "critic.cliprange_value"),
    KnobMapping("whitened_advantages", write=NothingToSet("verl always whitens GAE advantages")),
    KnobMapping(
        "drop_failed_rollouts",
        write=Unsupported("set the response_mask of failed rollouts to 0 in your agent loop"),
    ),
    KnobMapping(
        "float32_weights",
        f"{ACTOR}.fsdp_config.model_dtype",
        write="fp32",
        note="the default; Megatron always keeps a float32 copy",
    ),
    KnobMapping("forking_tokens", write=Unsupported("see verl-recipe's high-entropy recipe")),
    KnobMapping(
        "mask_tool_tokens",
        write=NothingToSet(
            "verl's agent loops mask tool tokens; check the response_mask of your own loop"
        ),
    ),
    KnobMapping("no_repetition_penalty", f"{_ROLLOUT}.repetition_penalty", write=1.0),
    KnobMapping(
        "pass_rate_filter",
        write=Unsupported("write the kept prompts to data.train_files before the run"),
    ),
    KnobMapping("repetition_penalty", write=Unsupported(f"add it {_REWARD}")),
    KnobMapping(
        "router_loss",
        f"{_MEGATRON}.moe_aux_loss_coeff",
        write="0.0",
        note="only with Megatron; with FSDP set router_aux_loss_coef in model.override_config",
    ),
    KnobMapping(
        "staleness_limit",
        "trainer.v1.sampler.max_off_policy_threshold",
        note="of the asynchronous trainers; trainer.v1.trainer_mode=sync has none",
    ),
)


def _read_devices(setting: Setting, settings: Settings) -> Setting | None:
    """Data-parallel devices of all nodes; unknown with another backend than FSDP."""
    backend = settings.get(f"{ACTOR}.strategy", "fsdp"), settings.get("model_engine", "dp")
    others = tuple(f"{ACTOR}.{name}." for name in _BACKENDS)
    if backend not in (("fsdp", "dp"), ("fsdp2", "dp")) or any(
        key.startswith(others) for key in settings
    ):
        return None
    return product_with("trainer.nnodes", default=1, per=_SPLITS)(setting, settings)


def _read_pass(setting: Setting, settings: Settings) -> Setting | None:
    """Responses of one pass, unless a pass takes as many as a number of tokens allows."""
    return None if settings.get(f"{ACTOR}.use_dynamic_bsz") is True else setting


def _read_learner_length(setting: Setting, settings: Settings) -> Setting | None:
    """Tokens of one pass, in which a response must fit, on all devices that share it."""
    if settings.get(f"{ACTOR}.use_dynamic_bsz") is not True or not is_count(setting):
        return None
    return setting * largest_count(settings, _SPLITS)


FACTS = (
    KnobMapping("greedy_sampling", f"{_ROLLOUT}.do_sample", read=_read_greedy, default=True),
    KnobMapping("top_p", f"{_ROLLOUT}.top_p"),
    KnobMapping("top_k", f"{_ROLLOUT}.top_k"),
    KnobMapping("repetition_penalty", f"{_ROLLOUT}.repetition_penalty"),
    KnobMapping("ignores_end_token", f"{_ROLLOUT}.ignore_eos"),
    KnobMapping("kl_in_reward", "algorithm.kl_ctrl.kl_coef", read=_read_reward_kl, default=0.001),
    KnobMapping("kl_in_loss", f"{ACTOR}.kl_loss_coef", read=_read_loss_kl, default=0.001),
    KnobMapping(
        "kl_estimator",
        f"{ACTOR}.kl_loss_type",
        read={
            **dict.fromkeys(("kl", "k1"), "k1"),
            **dict.fromkeys(("mse", "k2", "kl+", "k1+", "k3+", "low_var_kl+"), "k2"),
            **dict.fromkeys(("low_var_kl", "k3"), "k3"),
        },
    ),
    KnobMapping(
        "unprotected_bfloat16",
        f"{ACTOR}.fsdp_config.model_dtype",
        read=lambda setting, settings: (
            setting in ("bf16", "bfloat16")
            and not settings.get("actor_rollout_ref.model.lora_rank")
        ),
    ),
    sampler_quantized(
        f"{_ROLLOUT}.quantization",
        f"{_ROLLOUT}.engine_kwargs.vllm.quantization",
        f"{_ROLLOUT}.engine_kwargs.sglang.quantization",
    ),
    KnobMapping(
        "staleness_limit", "trainer.v1.sampler.max_off_policy_threshold", read=_read_staleness
    ),
    KnobMapping(
        "lora_rank",
        f"{_MODEL}.lora_rank",
        read=rank_of_any(
            f"{_MODEL}.lora_rank",
            f"{_MODEL}.lora.rank",  # Megatron
            unknown_with=f"{_MODEL}.lora_adapter_path",
        ),
        default=0,
    ),
    KnobMapping("padded_denominator", f"{ACTOR}.loss_agg_mode", read=_read_padded),
    KnobMapping("max_prompt_length", "data.max_prompt_length"),
    KnobMapping("context_length", f"{_ROLLOUT}.max_model_len"),
    KnobMapping(
        "punishment_limit",
        "reward.reward_kwargs.max_resp_len",
        other_keys=("reward_model.reward_kwargs.max_resp_len",),
    ),
    KnobMapping(
        "overlong_buffer",
        "reward.reward_kwargs.overlong_buffer_cfg.len",
        other_keys=(
            "reward_model.reward_kwargs.overlong_buffer_cfg.len",
            "reward_model.overlong_buffer.len",
        ),
    ),
    KnobMapping(
        "router_loss",
        f"{ACTOR}.megatron.override_transformer_config.moe_aux_loss_coeff",
    ),
    KnobMapping("dual_clip", f"{ACTOR}.clip_ratio_c"),
    KnobMapping("critic_pretraining", "trainer.critic_warmup"),
    KnobMapping(
        "batch_responses",
        "data.train_batch_size",
        read=product_with(f"{_ROLLOUT}.n", f"{_ROLLOUT}.n_agent", default=1),
    ),
    KnobMapping(
        "update_responses",
        f"{ACTOR}.ppo_mini_batch_size",
        read=product_with(f"{_ROLLOUT}.n", default=1),
    ),
    KnobMapping("learner_devices", "trainer.n_gpus_per_node", read=_read_devices),
    KnobMapping(
        "device_responses",
        f"{ACTOR}.ppo_micro_batch_size_per_gpu",
        read=_read_pass,
    ),
    KnobMapping(
        "learner_length",
        f"{ACTOR}.ppo_max_token_len_per_gpu",
        read=_read_learner_length,
    ),
    KnobMapping("total_steps", "trainer.total_training_steps", read=count_only),
    KnobMapping("epochs", "trainer.total_epochs"),
    KnobMapping("shuffled_data", "data.shuffle"),
    KnobMapping("sampler_batch_tokens", f"{_ROLLOUT}.max_num_batched_tokens", read=count_only),
    KnobMapping("chunked_prefill", f"{_ROLLOUT}.enable_chunked_prefill"),
    *adam_betas(f"{ACTOR}.optim.betas"),
    KnobMapping("warmup_steps", f"{ACTOR}.optim.lr_warmup_steps", read=count_only),
    KnobMapping("warmup_share", f"{ACTOR}.optim.lr_warmup_steps_ratio"),
    KnobMapping(
        "old_logprobs", f"{_CORRECTION}.bypass_mode", read={True: "sampler", False: "recompute"}
    ),
)

DEFAULTS: Settings = {
    "shuffled_data": True,
    "clip_low": 0.2,
    "clip_high": 0.2,
    "correction": "none",
    "entropy_coefficient": 0.0,
    "temperature": 1.0,
    "group_size": 1,
    "max_length": 512,
    "max_prompt_length": 512,
    "prompts_per_batch": 1024,
    "old_logprobs": "recompute",
}
"""Defaults of actor.yaml and rollout.yaml."""

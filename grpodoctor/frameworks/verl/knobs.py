"""verl: Hydra overrides of its main configuration, checked against v0.9."""

from __future__ import annotations

from grpodoctor.frameworks.knob_mapping import KnobMapping, KnobTable, as_is, nothing_to_set
from grpodoctor.frameworks.verl.methods import DEFAULTS, FACTS, METHODS
from grpodoctor.frameworks.written_settings import (
    SHORT_DTYPES,
    Lines,
    Quotient,
    SettingLine,
    Settings,
    Syntax,
    Unsupported,
    WithNote,
    known_or,
    overlong_weight,
)
from grpodoctor.vocabulary.knobs import Setting

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
CORRECTION = "algorithm.rollout_correction"
OBSERVED = "grpodoctor"
"""Prefix of the losses that the hook registers; each computes what verl's own loss computes."""
_REWARD_KWARGS = "+reward.reward_kwargs"
_BUFFER = f"{_REWARD_KWARGS}.overlong_buffer_cfg"
_MEGATRON = f"+{ACTOR}.megatron.override_transformer_config"
_GSPO = WithNote("gspo", "verl implements it as gspo_token")


_READ_LOSSES = {
    "vanilla": "ppo_clip",
    "gspo": "gspo",
    "geo_mean": "gmpo",
    "dppo_tv": "dppo_binary_tv",
    "dppo_kl": "dppo_binary_kl",
    **{mode: mode for mode in ("cispo", "sapo", "clip_cov", "kl_cov")},
}


def modes(*names: str) -> tuple[str, ...]:
    """Values of `loss_mode` that select verl's losses: their names, and those of the hook.

    Args:
        names: verl's names.
    """
    default = (OBSERVED,) if "vanilla" in names else ()
    return (*names, *default, *(f"{OBSERVED}_{name}" for name in names))


_LIMIT = "'${data.max_response_length}'"
"""The length limit where no value is known: Hydra fills it in. The quotes keep a shell from it."""


def _constant(_: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    limit = known_or(knobs, "max_length", _LIMIT)
    why = "without it the loss is divided by the batch's padded width, which is not constant"
    return (
        SettingLine(f"{ACTOR}.loss_agg_mode", "seq-mean-token-sum-norm"),
        SettingLine(f"{ACTOR}.loss_scale_factor", limit, why),
    )


def _truncation(level: str) -> Lines:
    return {
        f"{CORRECTION}.rollout_is": WithNote(level, "algorithm.rollout_is in v0.6.0"),
        f"{ROLLOUT}.calculate_log_probs": True,
    }


def _replay(mode: str, *, of_rollout: bool) -> Lines:
    return {
        f"{ACTOR}.megatron.router_replay.mode": WithNote(
            mode, "actor.veomni with VeOmni; actor.router_replay up to v0.7; not with FSDP"
        ),
        f"{ROLLOUT}.enable_rollout_routing_replay": of_rollout,
    }


def _soft_overlong(_: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    limit = known_or(knobs, "max_length", _LIMIT)
    buffer = known_or(knobs, "overlong_buffer", "<data.max_response_length / 5>")
    return (
        SettingLine("reward.reward_manager.name", "dapo"),
        SettingLine(f"{_REWARD_KWARGS}.max_resp_len", limit, "under reward_model before 0.7"),
        SettingLine(f"{_BUFFER}.enable", "True"),
        SettingLine(f"{_BUFFER}.log", "True"),
        SettingLine(f"{_BUFFER}.len", buffer),
        overlong_weight(f"{_BUFFER}.penalty_factor", knobs),
    )


def _filter_groups(_: Setting, knobs: Settings) -> Lines:
    metric = "seq_reward" if knobs.get("variance_of") == "reward" else "acc"
    return {
        "algorithm.filter_groups.enable": WithNote(
            True, "check that your trainer reads it: the DAPO recipe of verl-recipe does"
        ),
        "algorithm.filter_groups.metric": metric,
    }


def _read_advantage(setting: Setting, settings: Settings) -> Setting | None:
    setting = str(setting).removeprefix(f"{OBSERVED}_")
    if setting == "grpo":
        by_std = settings.get("algorithm.norm_adv_by_std_in_grpo", True)
        return "group" if by_std else "centred"
    names = {"rloo": "leave_one_out", "gae": "gae", "gdpo": "gdpo"}
    return setting if setting == "reinforce_plus_plus_baseline" else names.get(setting)


def _read_group_size(setting: Setting, settings: Settings) -> Setting | None:
    """Responses per prompt, of which forks for agents sample one each time.

    verl-agent repeats the environment, and Search-R1 repeats the prompts (`n_agent`) before they
    reach the engine.
    """
    if not isinstance(setting, int):
        return setting
    if f"{ROLLOUT}.n" not in settings:  # its default is one; this is the value of a fork's key
        setting = 1
    for repeats in (settings.get("env.rollout.n"), settings.get(f"{ROLLOUT}.n_agent")):
        if isinstance(repeats, int):
            setting *= max(repeats, 1)
    return setting


def _read_updates(setting: Setting, settings: Settings) -> Setting | None:
    """Mini-batches per batch, both counted in prompts, times the passes over the batch.

    Search-R1 splits a batch that `n_agent` has repeated, and does not repeat the mini-batch.
    """
    prompts = settings.get("data.train_batch_size")
    epochs = settings.get(f"{ACTOR}.ppo_epochs", 1)
    repeats = settings.get(f"{ROLLOUT}.n_agent", 1)
    sizes = (setting, prompts, epochs, repeats)
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        return None
    return max(1, int(prompts or 1) * int(repeats or 1) // int(setting)) * int(epochs)


def _read_kl(setting: Setting, settings: Settings) -> Setting | None:
    return setting if settings.get(f"{ACTOR}.use_kl_loss") is True else 0.0


_MAPPINGS = (
    KnobMapping("loss", f"{ACTOR}.policy_loss.loss_mode",
        values={"ppo_clip": "vanilla", "gspo": _GSPO, "gspo_token": _GSPO},
        read={name: loss for mode, loss in _READ_LOSSES.items() for name in modes(mode)},
        write=Unsupported(f"see {ACTOR}.policy_loss.loss_mode for the available variants"),
        default="vanilla"),
    KnobMapping("clip_low", f"{ACTOR}.clip_ratio_low", other_keys=(f"{ACTOR}.clip_ratio",)),
    KnobMapping("clip_high", f"{ACTOR}.clip_ratio_high", other_keys=(f"{ACTOR}.clip_ratio",)),
    KnobMapping("aggregation", f"{ACTOR}.loss_agg_mode",
        values={"sequence-mean": "seq-mean-token-mean", "token-mean": "token-mean",
                "sequence-mean-token-sum": "seq-mean-token-sum", "constant": _constant},
        read={"seq-mean-token-sum-norm": "constant"},
        write=Unsupported("use loss_agg_mode=token-mean, the mean over all tokens"),
        default="token-mean"),
    KnobMapping("advantage", "algorithm.adv_estimator",
        values={"group": {"algorithm.adv_estimator": "grpo",
                          "algorithm.norm_adv_by_std_in_grpo": True},
                "centred": {"algorithm.adv_estimator": "grpo",
                            "algorithm.norm_adv_by_std_in_grpo": False}},
        read=_read_advantage,
        write=Unsupported("see algorithm.adv_estimator for the available estimators")),
    KnobMapping("correction", f"{CORRECTION}.rollout_is",
        values={"none": {f"{CORRECTION}.rollout_is": "null"}, "tis_token": _truncation("token"),
                "tis_sequence": _truncation("sequence")},
        read={"token": "tis_token", "sequence": "tis_sequence"},
        write=Unsupported(f"see {CORRECTION} for the available corrections")),
    KnobMapping("correction_cap", f"{CORRECTION}.rollout_is_threshold"),
    KnobMapping("old_logprobs", f"{CORRECTION}.bypass_mode", reads=False,
        values={"recompute": False, "sampler": True}),
    KnobMapping("dynamic_sampling", "algorithm.filter_groups.enable",
        values={True: _filter_groups, False: False},
        read=as_is),
    KnobMapping("overlong", f"{_BUFFER}.enable", reads=False,
        values={"none": False,
                "mask": Unsupported(
                    "truncated responses cannot be masked in the loss; use the soft punishment"),
                "soft-punishment": _soft_overlong},
        write=Unsupported("use the soft punishment, or shape the reward in your own function")),
    KnobMapping("overlong_buffer", f"{_BUFFER}.len", reads=False),
    KnobMapping("kl_coefficient", f"{ACTOR}.kl_loss_coef",
        values={0.0: {f"{ACTOR}.use_kl_loss": False}},
        enabled_by={f"{ACTOR}.use_kl_loss": WithNote(True, "loads the reference model")},
        read=_read_kl),
    KnobMapping("entropy_coefficient", f"{ACTOR}.entropy_coeff"),
    KnobMapping("learning_rate", f"{ACTOR}.optim.lr"),
    KnobMapping("temperature", f"{ROLLOUT}.temperature"),
    KnobMapping("group_size", f"{ROLLOUT}.n", read=_read_group_size,
        other_keys=(f"{ROLLOUT}.n_agent", "env.rollout.n")),
    KnobMapping("prompts_per_batch", "data.train_batch_size"),
    KnobMapping("updates_per_batch", f"{ACTOR}.ppo_mini_batch_size",
        write=Quotient(("prompts_per_batch",), "counts prompts"), read=_read_updates),
    KnobMapping("max_length", "data.max_response_length"),
    KnobMapping("routing_replay",
        values={"none": _replay("disabled", of_rollout=False),
                "R2": _replay("R2", of_rollout=False), "R3": _replay("R3", of_rollout=True)}),
    nothing_to_set("sampler_sync_every",
        "the synchronous trainer syncs before every rollout; for the asynchronous trainer, limit "
        "staleness with trainer.v1.sampler.max_off_policy_threshold"),
)

_ENGINE_SETTINGS = (
    KnobMapping("sampler_dtype", f"{ROLLOUT}.dtype"),
    KnobMapping("learner_dtype", f"+{ACTOR}.fsdp_config.mixed_precision.param_dtype",
        values=SHORT_DTYPES, note="with Megatron: actor.megatron.dtype, which has no float32"),
    KnobMapping("float32_head", f"+{ROLLOUT}.engine_kwargs.sglang.enable_fp32_lm_head",
        note="only with SGLang"),
    KnobMapping("sampler_tensor_parallel", f"{ROLLOUT}.tensor_model_parallel_size"),
    KnobMapping("unquantized_sampler", f"{ROLLOUT}.quantization", write="null"),
    KnobMapping("unquantized_cache", f"+{ROLLOUT}.engine_kwargs.vllm.kv_cache_dtype", write="auto",
        note="or .sglang"),
    KnobMapping("whole_distribution", write={f"{ROLLOUT}.top_p": "1.0", f"{ROLLOUT}.top_k": "-1"}),
    nothing_to_set("one_temperature", f"verl scores at {ROLLOUT}.temperature, as it samples"),
    KnobMapping("processed_logprobs", f"{ROLLOUT}.logprobs_mode", write="processed_logprobs"),
    KnobMapping("no_prefix_cache", f"{ROLLOUT}.enable_prefix_caching", write=False),
    KnobMapping("small_micro_batch", f"{ACTOR}.ppo_micro_batch_size_per_gpu", write=1,
        note="with use_dynamic_bsz: halve ppo_max_token_len_per_gpu"),
    KnobMapping("gradient_checkpointing", "actor_rollout_ref.model.enable_gradient_checkpointing"),
    KnobMapping("sampler_memory", f"{ROLLOUT}.gpu_memory_utilization", write=0.4,
        note="the default is 0.5; take 0.1 off yours"),
    KnobMapping("balanced_routers", f"{_MEGATRON}.moe_aux_loss_coeff",
        enabled_by={f"{_MEGATRON}.moe_router_load_balancing_type": WithNote("aux_loss",
                        "only with Megatron")}),
)

KNOBS = KnobTable(
    title="verl",
    syntax=Syntax(capital_booleans=True),
    mappings=_MAPPINGS,
    engine_settings=_ENGINE_SETTINGS,
    methods=METHODS,
    facts=FACTS,
    defaults=DEFAULTS,
    checkpoint_interval="trainer.save_freq",
)

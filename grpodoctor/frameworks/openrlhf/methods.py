"""Published methods and facts about the configuration in OpenRLHF's flags, read in v0.11."""

from __future__ import annotations

from grpodoctor.frameworks.adam_settings import adam_betas
from grpodoctor.frameworks.combined_settings import count_only, product_with
from grpodoctor.frameworks.knob_mapping import KnobMapping
from grpodoctor.frameworks.sampler_precision import sampler_quantized
from grpodoctor.frameworks.written_settings import (
    NothingToSet,
    SettingLine,
    Settings,
    Unsupported,
    WithNote,
    format_setting,
)
from grpodoctor.vocabulary.knobs import Setting

_IS = "algo.advantage.is_correction"
_REWARD = "add it in your own reward function (--reward.remote_url)"


def _cap(setting: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    bounds = {"icepop": "0.5 5", "geo_mask": "0.999 1.002"}
    correction = str(knobs.get("correction", ""))
    value = bounds.get(correction, f"0 {format_setting(setting)}")
    note = "lower and upper bound" + ("" if correction in bounds else "; TIS has no lower bound")
    return (SettingLine(f"--{_IS}_threshold", value, note),)


def _read_kl_in_loss(setting: Setting, settings: Settings) -> Setting | None:
    return setting if settings.get("algo.kl.use_loss") is True else 0.0


def _read_kl_in_reward(setting: Setting, settings: Settings) -> Setting | None:
    return 0.0 if settings.get("algo.kl.use_loss") is True else setting


def _read_staleness(setting: Setting, settings: Settings) -> Setting | None:
    return setting if settings.get("train.async_enable") is True else 0


def _updates(setting: Setting, settings: Settings) -> Setting | None:
    """Responses of a rollout batch over those of an optimizer step."""
    sizes = (settings.get("rollout.batch_size"), settings.get("rollout.n_samples_per_prompt"))
    prompts, responses = sizes
    if not isinstance(prompts, int | float) or not isinstance(responses, int | float):
        return None
    if not isinstance(setting, int | float) or setting < 1:
        return None
    return max(1, int(prompts * responses) // int(setting))


def _default_adam(_: Setting, __: Settings) -> tuple[SettingLine, ...]:
    """Adam's usual settings; the flag of the betas takes two numbers."""
    return SettingLine("--actor.adam.betas", "0.9 0.999"), SettingLine("--actor.adam.eps", "1e-8")


METHODS = (
    KnobMapping("kl_estimator", "algo.kl.estimator"),
    KnobMapping(
        "kl_in_loss",
        "algo.kl.init_coef",
        enabled_by={"algo.kl.use_loss": True, "algo.kl.estimator": "k3"},
    ),
    KnobMapping("no_kl_in_reward", "algo.kl.use_loss", write=True),
    KnobMapping("default_adam", write=_default_adam),
    KnobMapping(
        "kl_in_reward",
        "algo.kl.init_coef",
        enabled_by={"algo.kl.use_loss": False, "algo.kl.estimator": "k1"},
    ),
    KnobMapping("overlong", values={"stop-properly": {"reward.stop_properly_penalty_coef": 0.0}}),
    KnobMapping(
        "advantage",
        values={
            "reinforce_plus_plus_baseline": "reinforce_baseline",
            "leave_one_out": "rloo",
            "gae": "gae",
        },
    ),
    KnobMapping(
        "correction",
        values={
            "error_mask": {
                f"{_IS}_enable": True,
                f"{_IS}_type": "seq-mask-tis",
                f"{_IS}_threshold": WithNote("0.5 2", "geometric mean of a response's ratios"),
            },
            "icepop": {
                f"{_IS}_enable": True,
                f"{_IS}_type": "icepop",
                f"{_IS}_threshold": WithNote("0.5 5", "lower and upper bound"),
            },
            "geo_mask": {
                f"{_IS}_enable": True,
                f"{_IS}_type": "seq-mask-tis",
                f"{_IS}_threshold": WithNote("0.999 1.002", "lower and upper bound"),
            },
        },
    ),
    KnobMapping("correction_cap", write=_cap),
    KnobMapping("critic_pretraining", "critic.freezing_steps", note="freezes the actor meanwhile"),
    KnobMapping("gae_lambda", "algo.advantage.lambd"),
    KnobMapping("value_clip", "critic.value_clip"),
    KnobMapping(
        "whitened_advantages",
        write=NothingToSet("OpenRLHF whitens GAE advantages; omit --algo.advantage.no_std_norm"),
    ),
    KnobMapping(
        "mask_tool_tokens",
        write=NothingToSet("agents return action ranges; check that they hold generated tokens"),
    ),
    KnobMapping(
        "pass_rate_filter",
        write={
            "algo.dynamic_filtering_enable": True,
            "algo.dynamic_filtering_range": WithNote("0.2 0.8", "requires scores from 0 to 1"),
        },
    ),
    KnobMapping("repetition_penalty", write=Unsupported(_REWARD)),
    KnobMapping("drop_failed_rollouts", write=Unsupported("retry them in your own agent function")),
    KnobMapping("router_loss", "actor.aux_loss_coef"),
    KnobMapping("staleness_limit", "train.async_queue_size", note="only in asynchronous training"),
    KnobMapping(
        "float32_weights", write=NothingToSet("DeepSpeed keeps a float32 copy of the weights")
    ),
)

FACTS = (
    KnobMapping(
        "batch_responses",
        "rollout.batch_size",
        read=product_with("rollout.n_samples_per_prompt", default=1),
    ),
    KnobMapping("update_responses", "train.batch_size", read=count_only),
    KnobMapping("kl_in_loss", "algo.kl.init_coef", read=_read_kl_in_loss),
    KnobMapping("kl_in_reward", "algo.kl.init_coef", read=_read_kl_in_reward),
    KnobMapping("kl_estimator", "algo.kl.estimator"),
    KnobMapping("epochs", "train.num_episodes"),
    KnobMapping("top_p", "rollout.top_p"),
    KnobMapping("context_length", "data.max_len"),
    sampler_quantized(),
    *adam_betas("actor.adam.betas"),
    KnobMapping("adam_epsilon", "actor.adam.eps"),
    KnobMapping("router_loss", "actor.aux_loss_coef"),
    KnobMapping("lora_rank", "ds.lora.rank", default=0),
    KnobMapping("critic_pretraining", "critic.freezing_steps"),
    KnobMapping("punishment_limit", "rollout.max_new_tokens"),
    KnobMapping("overlong_buffer", "reward.overlong_buffer_len"),
    KnobMapping("staleness_limit", "train.async_queue_size", read=_read_staleness),
    KnobMapping("updates_per_batch", "train.batch_size", read=_updates),
)


FORMER_KEYS = {
    "actor_learning_rate": "actor.adam.lr",
    "adam_betas": "actor.adam.betas",
    "advantage_estimator": "algo.advantage.estimator",
    "aux_loss_coef": "actor.aux_loss_coef",
    "entropy_loss_coef": "actor.entropy_coef",
    "eps_clip": "actor.eps_clip",
    "eps_clip_low_high": "actor.eps_clip_low_high",
    "freezing_actor_steps": "critic.freezing_steps",
    "generate_max_len": "rollout.max_new_tokens",
    "init_kl_coef": "algo.kl.init_coef",
    "kl_estimator": "algo.kl.estimator",
    "lambd": "algo.advantage.lambd",
    "lora_rank": "ds.lora.rank",
    "n_samples_per_prompt": "rollout.n_samples_per_prompt",
    "num_episodes": "train.num_episodes",
    "overlong_buffer_len": "reward.overlong_buffer_len",
    "policy_loss_type": "actor.policy_loss_type",
    "rollout_batch_size": "rollout.batch_size",
    "temperature": "rollout.temperature",
    "top_p": "rollout.top_p",
    "train_batch_size": "train.batch_size",
    "use_kl_loss": "algo.kl.use_loss",
    "vllm_tensor_parallel_size": "vllm.tensor_parallel_size",
}
"""Flat flags of versions before 0.10.2, with the dotted ones that replaced them."""

DEFAULTS: Settings = {"clip_low": 0.2, "clip_high": 0.2, "aggregation": "token-mean"}
"""Defaults of train_ppo_ray.py."""

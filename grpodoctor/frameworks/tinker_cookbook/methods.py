"""Published methods and facts about the configuration in tinker-cookbook's arguments, v0.6."""

from __future__ import annotations

from grpodoctor.frameworks.knob_mapping import KnobMapping
from grpodoctor.frameworks.written_settings import (
    NothingToSet,
    SettingLine,
    Settings,
    Unsupported,
    Writer,
    format_setting,
)
from grpodoctor.vocabulary.knobs import Setting

_SERVER = Unsupported("the server trains the model, and the client cannot change this")


def _clip(_: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    loss = "cispo" if knobs.get("loss") == "cispo" else "ppo"
    low, high = (
        float(value) if isinstance(value := knobs.get(name, 0.2), int | float) else 0.2
        for name in ("clip_low", "clip_high")
    )
    bounds = {"clip_low_threshold": 1 - low, "clip_high_threshold": 1 + high}
    text = ", ".join(f'"{key}": {format_setting(round(bound, 6))}' for key, bound in bounds.items())
    return (
        SettingLine("loss_fn", f'"{loss}"', "the default, importance_sampling, does not clip"),
        SettingLine("loss_fn_config", f"{{{text}}}", "limits of the ratio itself"),
    )


def _loss(name: str) -> Writer:
    def write(_: Setting, __: Settings) -> tuple[SettingLine, ...]:
        note = "the default, importance_sampling, does not clip"
        return (SettingLine("loss_fn", f'"{name}"', note),)

    return write


def _read_loss(setting: Setting, _: Settings) -> Setting | None:
    names = {"importance_sampling": "reinforce", "ppo": "ppo_clip", "cispo": "cispo"}
    return names.get(str(setting))


METHODS = (
    KnobMapping("no_kl_in_reward", "kl_penalty_coef", write=0.0),
    KnobMapping("kl_in_reward", "kl_penalty_coef"),
    KnobMapping("loss", values={"cispo": _loss("cispo"), "ppo_clip": _loss("ppo")}),
    KnobMapping("clip_low", write=_clip),
    KnobMapping("clip_high", write=_clip),
    KnobMapping(
        "drop_failed_rollouts",
        write=NothingToSet("rollout_error_tolerance=True retries failed trajectories"),
    ),
    KnobMapping("float32_weights", write=_SERVER),
    KnobMapping(
        "mask_tool_tokens",
        write=NothingToSet("only sampled tokens have a mask of 1; check your own environment"),
    ),
    KnobMapping("pass_rate_filter", write=Unsupported("filter the dataset builder's prompts")),
    KnobMapping("repetition_penalty", write=Unsupported("add it in your environment's reward")),
    KnobMapping("router_loss", write=_SERVER),
    KnobMapping(
        "staleness_limit",
        "async_config.max_steps_off_policy",
        note="without async_config, samples are never stale",
    ),
)

FACTS = (
    KnobMapping("loss", "loss_fn", read=_read_loss),
    KnobMapping(
        # The server computes log-probabilities at temperature 1.
        "learner_temperature",
        "temperature",
        read=lambda *_: 1.0,
    ),
    KnobMapping("greedy_sampling", "temperature", read=lambda setting, _: setting == 0),
    KnobMapping("kl_in_reward", "kl_penalty_coef", default=0.0),
    KnobMapping("staleness_limit", "async_config.max_steps_off_policy", default=0),
    KnobMapping("lora_rank", "lora_rank", default=32),
)

DEFAULTS: Settings = {"loss": "reinforce", "advantage": "centred"}
"""The default loss_fn, importance_sampling, has a ratio without a clip."""

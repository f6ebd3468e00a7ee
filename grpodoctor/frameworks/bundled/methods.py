"""Published methods and facts about the configuration in the bundled trainer's settings."""

from __future__ import annotations

from grpodoctor.frameworks.adam_settings import adam, default_adam
from grpodoctor.frameworks.knob_mapping import KnobMapping
from grpodoctor.frameworks.written_settings import NothingToSet, Settings, Unsupported
from grpodoctor.vocabulary.knobs import Setting


def _read_staleness(setting: Setting, _: Settings) -> Setting | None:
    return setting - 1 if isinstance(setting, int | float) else None


def _read_kl_in_reward(setting: Setting, settings: Settings) -> Setting | None:
    is_in_reward = settings.get("loss.kl_placement") == "reward"
    return setting if is_in_reward else 0.0


def _read_kl_in_loss(setting: Setting, settings: Settings) -> Setting | None:
    is_in_loss = settings.get("loss.kl_placement", "loss") == "loss"
    return setting if is_in_loss else 0.0


def _read_quantized(setting: Setting, _: Settings) -> Setting | None:
    return setting in ("int8", "int4")


def _read_unprotected(setting: Setting, settings: Settings) -> Setting | None:
    is_bfloat16 = setting == "bfloat16" and settings.get("model.name", "builtin") != "builtin"
    return is_bfloat16 and not settings.get("model.lora_rank")


METHODS = (
    default_adam("optimizer.beta1", "optimizer.beta2", "optimizer.epsilon"),
    KnobMapping("divergence_limit", "loss.divergence_limit"),
    KnobMapping("drift_penalty", "loss.drift_penalty"),
    KnobMapping("kl_estimator", "loss.kl_estimator"),
    KnobMapping("no_kl_in_reward", "loss.kl_placement", write="loss"),
    KnobMapping(
        "kl_in_reward",
        "loss.kl_coefficient",
        enabled_by={"loss.kl_placement": "reward", "loss.kl_estimator": "k1"},
    ),
    KnobMapping(
        "correction",
        values={
            "icepop": {
                "correction.kind": "icepop",
                "correction.floor": 0.5,
                "correction.cap": 5.0,
            },
            "geo_mask": {
                "correction.kind": "geo_mask",
                "correction.floor": 0.999,
                "correction.cap": 1.002,
            },
        },
    ),
    KnobMapping("advantage_reweighting", "reweighting.alpha"),
    KnobMapping("critic_pretraining", "critic.pretrain_steps"),
    KnobMapping(
        "drop_failed_rollouts", write=Unsupported("its tasks have neither tools nor environments")
    ),
    KnobMapping("float32_weights", "model.dtype", write="float32"),
    KnobMapping("forking_tokens", "reweighting.forking_share"),
    KnobMapping("lopti", "reweighting.lopti_threshold"),
    KnobMapping(
        "mask_tool_tokens",
        write=NothingToSet("the bundled trainer has no tools: every token is generated"),
    ),
    KnobMapping("pass_rate_filter", "difficulty.every", write=20, note="steps between estimates"),
    KnobMapping("repetition_penalty", "repetition.penalty"),
    KnobMapping(
        "router_loss", write=NothingToSet("the bundled trainer never adds the auxiliary loss")
    ),
    KnobMapping("staleness_limit", "engine.sync_every", write=1),
)

FACTS = (
    KnobMapping("top_p", "rollout.top_p"),
    KnobMapping("top_k", "rollout.top_k"),
    KnobMapping("temperature", "engine.temperature"),
    KnobMapping("learner_temperature", "rollout.temperature"),
    KnobMapping("kl_in_reward", "loss.kl_coefficient", read=_read_kl_in_reward),
    KnobMapping("kl_in_loss", "loss.kl_coefficient", read=_read_kl_in_loss),
    KnobMapping(
        "kl_estimator",
        "loss.kl_estimator",
        read={
            **{name: name for name in ("k1", "k2", "k3")},
            "k3_ratio": "k3",
            "k3_straight_through": "k3",
        },
    ),
    KnobMapping("sampler_quantized", "engine.precision", read=_read_quantized),
    KnobMapping("staleness_limit", "engine.sync_every", read=_read_staleness),
    KnobMapping("lora_rank", "model.lora_rank"),
    KnobMapping("context_length", "engine.max_model_len"),
    KnobMapping("dual_clip", "loss.dual_clip"),
    *adam("optimizer.beta1", "optimizer.beta2", "optimizer.epsilon"),
    KnobMapping("critic_pretraining", "critic.pretrain_steps"),
    KnobMapping("unprotected_bfloat16", "model.dtype", read=_read_unprotected),
    KnobMapping("pretrained_model", "model.name", read=lambda setting, _: setting != "builtin"),
)

"""Published methods and facts about the configuration in ROLL's settings, commit 8eb27cc2."""

from __future__ import annotations

from grpodoctor.frameworks.knob_mapping import KnobMapping
from grpodoctor.frameworks.roll.config_values import (
    FILTERS,
    PG_WORKER,
    SAMPLING,
    WEIGHT,
    if_sampling,
)
from grpodoctor.frameworks.sampler_precision import sampler_quantized
from grpodoctor.frameworks.written_settings import (
    Lines,
    NothingToSet,
    Raw,
    Settings,
    Unsupported,
    WithNote,
    Writer,
)
from grpodoctor.vocabulary.knobs import Setting

_QUERIES = "rewards.<domain>.query_filter_config"
_BOTH = "takes effect together with the other side of the range, 0.2 by default"
_CISPO_BOUND = "the bounds are 0.1 in its source; edit actor_pg_worker.py for others"


def weighted(level: str) -> Lines:
    """Weights by the ratio of a token or of a response."""
    return {f"{WEIGHT}.enabled": True, f"{WEIGHT}.weight_type": level}


def _masked(level: str, low: float, high: float, *, weight: str = "", note: str = "") -> Lines:
    """Weights, and a filter that masks ratios out of range."""
    text = f"{{enabled: true, agg_type: {level}, ratio_low: {low:g}, ratio_high: {high:g}}}"
    return {**weighted(weight or level), FILTERS: WithNote(Raw(f"[{text}]"), note)}


def _variant(name: str, note: str = "") -> Lines:
    return {
        "actor_train.worker_cls": WithNote(
            PG_WORKER, "roll.pipeline.agentic.agentic_actor_pg_worker for the agentic pipeline"
        ),
        "actor_train.pg_variant": WithNote(name, note) if note else name,
    }


def _clip(side: str) -> Writer:
    def write(setting: Setting, knobs: Settings) -> Lines | Unsupported:
        if knobs.get("loss") == "cispo":
            return Unsupported(_CISPO_BOUND)
        return {"use_pg_clip_range": True, f"pg_clip_{side}": WithNote(setting, _BOTH)}

    return write


def _read_reward_kl(setting: Setting, settings: Settings) -> Setting | None:
    return setting if settings.get("add_token_level_kl") is True else 0.0


def _read_loss_kl(setting: Setting, settings: Settings) -> Setting | None:
    return setting if settings.get("use_kl_loss") is True else 0.0


def _read_rank(setting: Setting, settings: Settings) -> Setting | None:
    return setting if settings.get("actor_train.model_args.lora_target") else 0


def _read_dual_clip(setting: Setting, settings: Settings) -> Setting | None:
    bound = settings.get("pg_clip", 0.2)
    return 1 + 2 * bound if setting is True and isinstance(bound, int | float) else None


def _read_padded(setting: Setting, settings: Settings) -> Setting | None:
    """Batches are padded to `sequence_length` unless they are packed or cut to their lengths."""
    switches = ("use_dynamic_batching_in_train", "use_sequence_packing")
    is_cut = any(settings.get(f"actor_train.{switch}") is True for switch in switches)
    return setting == "seq-mean-token-sum-norm" and is_cut


METHODS = (
    KnobMapping(
        "kl_estimator",
        values={"k3": NothingToSet("the KL loss always is k3")},
        write=Unsupported("the KL loss always is k3"),
    ),
    KnobMapping("no_kl_in_reward", "add_token_level_kl", write=False),
    KnobMapping(
        "kl_in_reward",
        "init_kl_coef",
        enabled_by={"use_kl_loss": False, "add_token_level_kl": True},
    ),
    KnobMapping(
        "loss", values={"cispo": _variant("cispo", _CISPO_BOUND), "reinforce": _variant("vanilla")}
    ),
    KnobMapping("clip_low", write=_clip("low")),
    KnobMapping("clip_high", write=_clip("high")),
    KnobMapping(
        "advantage",
        values={
            "reinforce_plus_plus_baseline": {
                "adv_estimator": "reinforce",
                "norm_mean_type": "group",
                "norm_std_type": "null",
                "whiten_advantages": True,
            },
        },
    ),
    KnobMapping(
        "correction",
        values={
            "error_mask": _masked(
                "geometric", 0.99, 1.01, weight="token", note="ROLL's nearest measure"
            ),
            "mis_token": _masked("token", 0, 2),
            "mis_sequence": _masked("sequence", 0, 2),
            "geo_mask": _masked("geometric", 0.999, 1.001, weight="token"),
            "icepop": {**_masked("token", 0.5, 5), f"{WEIGHT}.upper_bound": 5},
        },
    ),
    KnobMapping("critic_pretraining", "critic_warmup"),
    KnobMapping("gae_lambda", "lambd"),
    KnobMapping("value_clip", "value_clip"),
    KnobMapping("whitened_advantages", "whiten_advantages"),
    KnobMapping(
        "drop_failed_rollouts",
        write=Unsupported("return a response_mask of zeros for them from your env manager"),
    ),
    KnobMapping(
        "float32_weights",
        "actor_train.model_args.dtype",
        write="fp32",
        note="Megatron keeps a float32 copy with any dtype",
    ),
    KnobMapping(
        "mask_tool_tokens",
        write=NothingToSet("the env managers mask observations; check your own env manager"),
    ),
    KnobMapping("no_repetition_penalty", f"{SAMPLING}.repetition_penalty", write=1.0),
    KnobMapping(
        "pass_rate_filter",
        write={
            f"{_QUERIES}.type": WithNote("mean_filter", "in each domain; drops sampled prompts"),
            f"{_QUERIES}.filter_args.threshold_down": 0.2,
            f"{_QUERIES}.filter_args.threshold_up": 0.8,
        },
    ),
    KnobMapping("repetition_penalty", write=Unsupported("add it in your own reward worker")),
    KnobMapping("router_loss", "actor_train.model_args.moe_aux_loss_coef", write=Raw("0.0")),
    KnobMapping("staleness_limit", "async_generation_ratio"),
)

FACTS = (
    KnobMapping("learner_temperature", f"{SAMPLING}.temperature", read=lambda *_: 1.0),
    KnobMapping("greedy_sampling", f"{SAMPLING}.temperature", read=lambda value, _: value == 0),
    KnobMapping("top_p", f"{SAMPLING}.top_p", read=if_sampling, default=0.7),
    KnobMapping("top_k", f"{SAMPLING}.top_k", read=if_sampling, default=50),
    KnobMapping("repetition_penalty", f"{SAMPLING}.repetition_penalty"),
    KnobMapping("kl_in_reward", "init_kl_coef", read=_read_reward_kl, default=0.2),
    KnobMapping("kl_in_loss", "kl_loss_coef", read=_read_loss_kl),
    KnobMapping(
        "kl_estimator",
        "use_kl_loss",
        read=lambda setting, _: "k3" if setting is True else None,
    ),
    KnobMapping("dual_clip", "dual_clip_loss", read=_read_dual_clip),
    KnobMapping("max_prompt_length", "prompt_length"),
    KnobMapping("context_length", "actor_infer.strategy_args.strategy_config.max_model_len"),
    sampler_quantized("actor_infer.strategy_args.strategy_config.quantization"),
    KnobMapping("staleness_limit", "async_generation_ratio"),
    KnobMapping("lora_rank", "actor_train.model_args.lora_rank", read=_read_rank, default=8),
    KnobMapping("padded_denominator", "loss_agg_mode", read=_read_padded),
    KnobMapping("router_loss", "actor_train.model_args.moe_aux_loss_coef"),
    KnobMapping("critic_pretraining", "critic_warmup"),
)

DEFAULTS: Settings = {
    "loss": "ppo_clip",
    "clip_low": 0.2,
    "clip_high": 0.2,
    "aggregation": "sequence-mean",
    "correction": "none",
    "kl_coefficient": 0.0,
    "entropy_coefficient": 0.0,
    "group_size": 1,
    "old_logprobs": "recompute",
}
"""Defaults of roll/configs/base_config.py and rlvr_config.py."""

"""Published methods and facts about the configuration in prime-rl's TOML, read in v0.8.1."""

from __future__ import annotations

from grpodoctor.frameworks.adam_settings import adam, default_adam
from grpodoctor.frameworks.adapter_rank import rank_of_any
from grpodoctor.frameworks.combined_settings import count_only, lowest_with
from grpodoctor.frameworks.knob_mapping import KnobMapping
from grpodoctor.frameworks.sampler_precision import sampler_quantized
from grpodoctor.frameworks.written_settings import (
    NothingToSet,
    SettingLine,
    Settings,
    Unsupported,
    Writer,
    format_setting,
)
from grpodoctor.vocabulary.knobs import Setting

_LOSS = "trainer.loss"


def _limit(bound: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    if knobs.get("loss") == "ipo":
        return (SettingLine(f"{_LOSS}.ipo_threshold", format_setting(bound)),)
    return tuple(
        SettingLine(f"{_LOSS}.dppo_mask_{side}", format_setting(bound)) for side in ("low", "high")
    )


def _loss(kind: str, bound: float | None) -> Writer:
    def write(_: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
        limit = knobs.get("divergence_limit", bound)
        lines = () if limit is None else _limit(limit, knobs)
        return (SettingLine(f"{_LOSS}.type", f'"{kind}"'), *lines)

    return write


METHODS = (
    default_adam("trainer.optim.betas1", "trainer.optim.betas2"),
    KnobMapping("divergence_limit", write=_limit),
    KnobMapping("drift_penalty", f"{_LOSS}.kl_tau"),
    KnobMapping(
        "no_kl_in_reward", write=NothingToSet("prime-rl has no KL penalty to a reference model")
    ),
    KnobMapping(
        "kl_in_reward",
        write=Unsupported("trainer.loss.kl_tau pulls toward the sampler, not a reference"),
    ),
    KnobMapping("advantage", values={"max_rl": {"orchestrator.algo.type": "max_rl"}}),
    KnobMapping(
        "loss",
        read={"default": "dppo_binary_tv", "ipo": "ipo"},
        values={"ipo": _loss("ipo", None), "dppo_binary_tv": _loss("default", 0.15)},
    ),
    KnobMapping(
        "correction",
        values={
            "error_mask": Unsupported('mask them in a loss of type "custom"'),
            "none": NothingToSet("prime-rl's loss is anchored on the sampler"),
        },
    ),
    KnobMapping(
        "drop_failed_rollouts",
        write=NothingToSet("rollouts that end with an error are dropped; retry them in your env"),
    ),
    KnobMapping(
        "float32_weights",
        "trainer.model.optimization_dtype",
        write="float32",
        note="the default",
    ),
    KnobMapping(
        "mask_tool_tokens",
        write=NothingToSet("only sampled tokens are trained, except with algo type echo"),
    ),
    KnobMapping("pass_rate_filter", write=Unsupported("filter the environment's dataset")),
    KnobMapping("repetition_penalty", write=Unsupported("add it to your environment's rubric")),
    KnobMapping("staleness_limit", "orchestrator.max_off_policy_steps"),
    KnobMapping("router_loss", write=NothingToSet("prime-rl never adds the auxiliary loss")),
)

FACTS = (
    KnobMapping("batch_responses", "orchestrator.batch_size", read=count_only),
    KnobMapping("top_p", "orchestrator.train.sampling.extra_body.top_p"),
    KnobMapping("top_k", "orchestrator.train.sampling.extra_body.top_k"),
    KnobMapping("min_p", "orchestrator.train.sampling.extra_body.min_p"),
    KnobMapping(
        "greedy_sampling",
        "orchestrator.train.sampling.temperature",
        read=lambda setting, _: setting == 0,
    ),
    KnobMapping("staleness_limit", "orchestrator.max_off_policy_steps"),
    sampler_quantized("inference.vllm.quantization"),
    *adam("trainer.optim.betas1", "trainer.optim.betas2"),
    KnobMapping(
        "context_length",
        "orchestrator.seq_len",
        other_keys=(
            "seq_len",
            "inference.vllm.max_model_len",
            "inference.model.max_model_len",
            "trainer.model.seq_len",
        ),
        read=lowest_with("inference.vllm.max_model_len", "inference.model.max_model_len"),
    ),
    KnobMapping("learner_length", "trainer.model.seq_len", other_keys=("seq_len",)),
    KnobMapping("total_steps", "max_steps", read=count_only),
    KnobMapping("warmup_steps", "trainer.scheduler.warmup_steps", read=count_only),
    KnobMapping(
        "lora_rank",
        "trainer.model.lora.rank",
        read=rank_of_any("trainer.model.lora.rank", "trainer.model.experimental.lora.rank"),
        default=0,
    ),
    KnobMapping(
        "unprotected_bfloat16",
        "trainer.model.optimization_dtype",
        read={"bfloat16": True, "float32": False},
    ),
)

DEFAULTS: Settings = {"advantage": "centred", "aggregation": "token-mean"}
"""Defaults of `algo.type = "grpo"`, the default algorithm."""

"""OPT101."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.probe.inputs.checksums import open_checkpoint
from grpodoctor.rules.base import Severity

_GIB = 1 << 30
_BF16, _FP32 = 2, 4
_ADAM_BYTES = 16
"""Per parameter in mixed precision: weight and gradient in two bytes each, master weight and both
moments in four each (Rajbhandari et al. 2020). Float32 throughout needs as much."""
_ADAM_BF16_BYTES = 8
"""Per parameter with weight, gradient and moments in bfloat16."""
_LORA_BYTES = 2
_MAX_ROWS = 2000
_CACHE = "key-value cache of one response"
_ADVICE = (
    "Shard the learner, let the sampler sleep during updates, or train adapters.",
    "Shorter responses need less memory for cache and logits.",
)


class MemoryEstimate(Check):
    """Learner and sampler do not fit into memory together.

    What it sees:
        Counts parameters in the checkpoint and adds up: weights, gradients and Adam states of the
        learner in mixed precision; the sampler's copy of the weights, and the reference's if one is
        given; the KV cache of one response of maximum length after the longest prompt; and its
        logits in float32, the minimum in most trainers. The details also give the total in bfloat16
        throughout, with adapters, and with the KV cache of a whole batch, which an engine avoids by
        queueing responses.

    Why it matters:
        Out-of-memory errors come with the longest response, hours into the run.

    What to do:
        Shard the learner (FSDP), let the sampler sleep during updates, train adapters, or shorten
        responses.

    When it is wrong:
        The estimate is a lower bound for one device. It leaves out fragmentation and all
        activations but the logits, so a model that fits by this estimate may still run out of
        memory. Optimizers with fewer bytes (8-bit Adam), offloaded weights, and logits that are
        computed in chunks need less.

    References:
        Rajbhandari et al. 2020, arXiv 1910.02054, section 3.1, for 16 bytes per parameter.
    """

    code: ClassVar[str] = "OPT101"
    name: ClassVar[str] = "out-of-memory"
    former_names: ClassVar[tuple[str, ...]] = ("memory-budget",)
    summary: ClassVar[str] = "Learner and sampler do not fit into memory together."
    references: ClassVar[tuple[str, ...]] = ("arXiv 1910.02054",)
    max_memory_share: ClassVar[float] = 0.7
    """Share of the memory above which the check reports: activations need the rest."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Count parameters, cache and logits."""
        checkpoint = open_checkpoint(str(context.model))
        if checkpoint is None:
            return SkippedCheck("the model has no safetensors files to count parameters in")
        if checkpoint.quantization:
            return SkippedCheck(
                f"the weights are quantized ({checkpoint.quantization}), so the files do not show "
                "the number of parameters"
            )
        parameters = sum(math.prod(tensor.shape) for tensor in checkpoint.tensors.values())
        parts = _parts(context, parameters)
        known = {name: size for name, size in parts.items() if size is not None}
        need = sum(known.values()) / _GIB
        bf16_need = need - parameters * (_ADAM_BYTES - _ADAM_BF16_BYTES) / _GIB
        figures = {f"{name} (bytes)": float(size) for name, size in known.items()}
        figures |= {"gib": need, "gib_bfloat16": bf16_need, "parameters": float(parameters)}
        summary = f"{_format_count(parameters)} parameters need {_format_gib(need)}"
        room = context.settings.memory_gib
        severity: Severity = "info"
        if room is not None:
            summary += f" of {room:g} GiB"
            if need > self.max_memory_share * room:
                severity = "critical" if bf16_need > room else "warning"
        return (
            CheckFinding(
                severity,
                f"{summary} on one device, in mixed precision.",
                _ADVICE if severity != "info" else (),
                _table(context, parts, parameters, need, bf16_need),
                figures,
            ),
        )


def _parts(context: PreflightContext, parameters: int) -> dict[str, int | None]:
    """Bytes of each part; None if config.json is not sufficient."""
    tokens = context.settings.max_tokens + _longest_prompt(context)
    dtype = str(context.sampler.engine.options.get("dtype", "")) if context.sampler else ""
    width = _FP32 if dtype == "float32" else _BF16
    vocabulary = context.config_count("vocab_size")
    parts: dict[str, int | None] = {
        "learner: weights, gradients and Adam": parameters * _ADAM_BYTES,
        "sampler's weights": parameters * width,
        _CACHE: _cache_bytes(context, tokens),
        "logits of one response": _FP32 * tokens * vocabulary if vocabulary else None,
    }
    if context.reference is not None:
        parts["reference's weights"] = parameters * _BF16
    return parts


def _table(
    context: PreflightContext,
    parts: Mapping[str, int | None],
    parameters: int,
    need: float,
    bf16_need: float,
) -> tuple[str, ...]:
    settings = context.settings
    lines = [
        f"{name}: {'unknown for this architecture' if size is None else _format_gib(size / _GIB)}"
        for name, size in parts.items()
    ]
    lines.append(f"total in bfloat16 throughout: {_format_gib(bf16_need)}")
    frozen = need - parameters * (_ADAM_BYTES - _LORA_BYTES) / _GIB
    lines.append(f"total with adapters, without the adapters' memory: {_format_gib(frozen)}")
    if cache := parts[_CACHE]:
        count = settings.batch_prompts * settings.group_size
        with_batch = need + cache * (count - 1) / _GIB
        lines.append(f"total with the KV cache of all {count} responses: {_format_gib(with_batch)}")
    return tuple(lines)


def _longest_prompt(context: PreflightContext) -> int:
    """Tokens of the longest prompt that fits into the context."""
    room = (context.context_length or sys.maxsize) - context.settings.max_tokens
    lengths = (len(context.render(row)) for row in context.rows[:_MAX_ROWS])
    return max((length for length in lengths if length <= room), default=0)


def _cache_bytes(context: PreflightContext, tokens: int) -> int | None:
    """Bytes of keys and values of a response; None if some layers are not attention."""
    layers = context.config_count("num_hidden_layers")
    width = _cache_width(context)
    if not layers or not width:
        return None
    window = context.config_count("sliding_window") or tokens
    layer_types = context.config_value("layer_types")
    full, sliding = layers, 0
    if isinstance(layer_types, list):
        full = layer_types.count("full_attention")
        sliding = layer_types.count("sliding_attention")
        if full + sliding < len(layer_types):
            return None
    return _BF16 * width * (full * tokens + sliding * min(window, tokens))


def _cache_width(context: PreflightContext) -> int | None:
    """Numbers per token in a layer's KV cache."""
    latent = context.config_count("kv_lora_rank")
    if latent:  # DeepSeek: one latent for keys and values, plus the rotated part of the key
        return latent + (context.config_count("qk_rope_head_dim") or 0)
    heads = context.config_count("num_attention_heads")
    if not heads:
        return None
    hidden = context.config_count("hidden_size") or 0
    width = context.config_count("head_dim") or hidden // heads
    return 2 * width * (context.config_count("num_key_value_heads") or heads) or None


def _format_count(parameters: int) -> str:
    return f"{parameters / 1e9:.2f} billion" if parameters >= 1e7 else f"{parameters:,}"


def _format_gib(size: float) -> str:
    return f"{size:.2f} GiB" if size >= 0.01 else f"{size * 1024:.2f} MiB"

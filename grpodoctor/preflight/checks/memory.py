"""OPT101."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.preflight.base import Check, Outcome, Remark, Skipped
from grpodoctor.preflight.context import Patient
from grpodoctor.probe.inputs.checksums import open_checkpoint
from grpodoctor.rules.base import Severity

_GIB = 1 << 30
_BF16, _FP32 = 2, 4
_ADAM_BYTES = 16
"""A parameter in mixed precision: weight and gradient in two bytes, master weight and both moments
in four each (Rajbhandari et al. 2020). In float32 throughout it is as much."""
_ADAM_BF16_BYTES = 8
"""A parameter whose weight, gradient and moments are all in bfloat16."""
_LORA_BYTES = 2
_MOST_ROWS = 2000
_CACHE = "key-value cache of one response"


class MemoryBudget(Check):
    """Learner and sampler will not fit the memory together.

    What it sees:
        Parameters counted from the checkpoint: weights, gradients and Adam's states of the learner
        in mixed precision; the sampler's own copy of the weights, and the reference's where one was
        given; keys and values of one response at full length behind the longest prompt; and its
        logits in float32, which is what most trainers hold at the least. Beside it: what it comes
        to in bfloat16 throughout, with adapters, and with the cache of a whole batch, which an
        engine does without by making responses wait.

    Why it matters:
        Running out of memory comes at the longest response, hours into the run.

    What to do:
        Shard the learner (FSDP), let the sampler sleep during updates, train adapters, or shorten.

    When it is wrong:
        It is an estimate of what cannot be avoided on one device, without activations beyond the
        logits and without fragmentation: what fits it may still not fit. Optimizers of fewer bytes
        (8-bit Adam), weights that are moved to the host, and logits that are never held whole need
        less.

    References:
        Rajbhandari et al. 2020, arXiv 1910.02054, section 3.1, for sixteen bytes a parameter.
    """

    code: ClassVar[str] = "OPT101"
    name: ClassVar[str] = "memory-budget"
    summary: ClassVar[str] = "Learner and sampler will not fit the memory together."
    references: ClassVar[tuple[str, ...]] = ("arXiv 1910.02054",)
    tight: ClassVar[float] = 0.7
    """Share of the memory from which on it is told: activations take what is left."""

    def examine(self, patient: Patient) -> Outcome:
        """Count parameters and the cache."""
        checkpoint = open_checkpoint(str(patient.model))
        if checkpoint is None:
            return Skipped("the model has no safetensors to count parameters in")
        if checkpoint.quantisation:
            return Skipped(
                f"the weights are quantised ({checkpoint.quantisation}): how many parameters they "
                "stand for is not in the files"
            )
        parameters = sum(math.prod(tensor.shape) for tensor in checkpoint.tensors.values())
        parts = _parts(patient, parameters)
        known = {name: size for name, size in parts.items() if size is not None}
        need = sum(known.values()) / _GIB
        slim = need - parameters * (_ADAM_BYTES - _ADAM_BF16_BYTES) / _GIB
        table = _table(patient, parts, parameters, need, slim)
        figures = {f"{name} (bytes)": float(size) for name, size in known.items()}
        figures |= {"gib": need, "gib_bfloat16": slim, "parameters": float(parameters)}
        told = f"{_counted(parameters)} parameters need {_gib(need)} in mixed precision"
        room = patient.plan.memory_gib
        if room is None:
            return (Remark("info", f"{told}, on one device", (), table, figures),)
        severity: Severity = "info"
        if need > self.tight * room:
            severity = "critical" if slim > room else "warning"
        advice = (
            "shard the learner, let the sampler sleep during updates, or train adapters",
            "shorter responses make cache and logits smaller",
        )
        told = f"{told}, of {room:g} GiB"
        return (Remark(severity, told, advice if severity != "info" else (), table, figures),)


def _parts(patient: Patient, parameters: int) -> dict[str, int | None]:
    """Bytes of each part; None where config.json does not say enough."""
    tokens = patient.plan.max_tokens + _longest_prompt(patient)
    dtype = str(patient.bench.sampler.options.get("dtype", "")) if patient.bench else ""
    width = _FP32 if dtype == "float32" else _BF16
    per_token = _cache_bytes(patient, tokens)
    vocabulary = patient.count("vocab_size")
    parts: dict[str, int | None] = {
        "learner: weights, gradients and Adam": parameters * _ADAM_BYTES,
        "sampler's weights": parameters * width,
        _CACHE: per_token,
        "logits of one response": _FP32 * tokens * vocabulary if vocabulary else None,
    }
    if patient.reference is not None:
        parts["reference's weights"] = parameters * _BF16
    return parts


def _table(
    patient: Patient, parts: Mapping[str, int | None], parameters: int, need: float, slim: float
) -> tuple[str, ...]:
    plan = patient.plan
    lines = [
        f"{name}: {'not known of this architecture' if size is None else _gib(size / _GIB)}"
        for name, size in parts.items()
    ]
    lines.append(f"in all, in bfloat16 throughout: {_gib(slim)}")
    adapters = need - parameters * (_ADAM_BYTES - _LORA_BYTES) / _GIB
    lines.append(f"in all, with adapters, without their own: {_gib(adapters)}")
    if cache := parts[_CACHE]:
        count = plan.batch_prompts * plan.group_size
        more = need + cache * (count - 1) / _GIB
        lines.append(f"in all, with the cache of all {count} responses at once: {_gib(more)}")
    return tuple(lines)


def _longest_prompt(patient: Patient) -> int:
    """Tokens of the longest prompt, among those that fit the context."""
    room = (patient.context or sys.maxsize) - patient.plan.max_tokens
    lengths = (len(patient.render(row)) for row in patient.rows[:_MOST_ROWS])
    return max((each for each in lengths if each <= room), default=0)


def _cache_bytes(patient: Patient, tokens: int) -> int | None:
    """Keys and values of a response in two bytes each; None for layers that are not attention."""
    layers = patient.count("num_hidden_layers")
    width = _cache_width(patient)
    if not layers or not width:
        return None
    window = patient.count("sliding_window") or tokens
    told = patient.setting("layer_types")
    full, sliding = layers, 0
    if isinstance(told, list):
        full, sliding = told.count("full_attention"), told.count("sliding_attention")
        if full + sliding < len(told):
            return None
    return _BF16 * width * (full * tokens + sliding * min(window, tokens))


def _cache_width(patient: Patient) -> int | None:
    """Numbers that a token leaves in a layer's cache."""
    latent = patient.count("kv_lora_rank")
    if latent:  # of DeepSeek: one latent for keys and values, and the rotated part of the key
        return int(latent) + int(patient.count("qk_rope_head_dim") or 0)
    heads = patient.count("num_attention_heads")
    if not heads:
        return None
    width = patient.count("head_dim") or (patient.count("hidden_size") or 0) // heads
    return 2 * int(width) * int(patient.count("num_key_value_heads") or heads) or None


def _counted(parameters: int) -> str:
    return f"{parameters / 1e9:.2f} billion" if parameters >= 1e7 else f"{parameters:,}"


def _gib(size: float) -> str:
    return f"{size:.2f} GiB" if size >= 0.01 else f"{size * 1024:.2f} MiB"

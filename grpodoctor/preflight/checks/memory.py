"""OPT101."""

from __future__ import annotations

from typing import Any, ClassVar

from grpodoctor.preflight.base import Check, Outcome, Remark, Skipped
from grpodoctor.preflight.patient import Patient
from grpodoctor.probe.checksums import open_checkpoint
from grpodoctor.rules.base import Severity

_GIB = 1 << 30
_BF16 = 2
_ADAM_BYTES = 16
"""A parameter in mixed precision: weight and gradient in two bytes, master weight and both moments
in four each (Rajbhandari et al. 2020)."""
_LORA_BYTES = 2


class MemoryBudget(Check):
    """Learner and sampler will not fit the memory together.

    What it sees:
        Parameters counted from the checkpoint: weights, gradients and Adam's states of the learner
        in mixed precision; the sampler's own copy of the weights; the key-value cache of a batch of
        responses at full length; and one response's logits in float32, which is what most trainers
        hold at the least.

    Why it matters:
        Running out of memory comes at the longest response, hours into the run.

    What to do:
        Shard the learner (FSDP), let the sampler sleep during updates, train adapters, or shorten.

    When it is wrong:
        It is an estimate of what cannot be avoided on one device, without activations beyond the
        logits and without fragmentation: what it calls too much is too much; what fits it may still
        not fit.

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
        parameters = sum(_entries(tensor.shape) for tensor in checkpoint.tensors.values())
        parts = {
            "learner, weights and Adam": parameters * _ADAM_BYTES,
            "sampler's weights": parameters * _BF16,
            "key-value cache": _cache_bytes(patient),
            "logits of one response": _logits_bytes(patient),
        }
        need = sum(parts.values()) / _GIB
        table = (
            *(f"{name}: {size / _GIB:.2f} GiB" for name, size in parts.items()),
            f"with adapters instead of all weights: {_with_adapters(parts, parameters):.2f} GiB",
        )
        figures = {"gib": need, "parameters": float(parameters)}
        told = f"{parameters / 1e9:.2f} billion parameters need {need:.1f} GiB at the least"
        room = patient.plan.memory_gib
        if room is None:
            return (Remark("info", f"{told} on one device", (), table, figures),)
        severity: Severity = "info"
        if need > self.tight * room:
            severity = "critical" if need > room else "warning"
        advice = (
            "shard the learner, let the sampler sleep during updates, or train adapters",
            "fewer prompts or shorter responses make the cache smaller",
        )
        told = f"{told}, of {room:g}"
        return (Remark(severity, told, advice if severity != "info" else (), table, figures),)


def _entries(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _number(config: Any, *names: str) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and value > 0:
            return value
    return 0


def _cache_bytes(patient: Patient) -> int:
    """Keys and values of a group of responses for each prompt of a batch, at full length."""
    config = patient.config
    heads = _number(config, "num_attention_heads")
    width = _number(config, "head_dim") or _number(config, "hidden_size") // max(heads, 1)
    keys = _number(config, "num_key_value_heads") or heads
    layers = _number(config, "num_hidden_layers")
    plan = patient.plan
    tokens = plan.batch_prompts * plan.group_size * plan.max_tokens
    return 2 * layers * keys * width * _BF16 * tokens


def _logits_bytes(patient: Patient) -> int:
    return 4 * patient.plan.max_tokens * _number(patient.config, "vocab_size")


def _with_adapters(parts: dict[str, int], parameters: int) -> float:
    whole = sum(parts.values())
    return (whole - parameters * (_ADAM_BYTES - _LORA_BYTES)) / _GIB

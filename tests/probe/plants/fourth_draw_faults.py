"""The faults of `fourth_draw` that no earlier set has.

Faults of the forward pass take the loaded engine and the fault's value, like those of
`computing.py`. The author had not read attribution's code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tests.probe.plants.computing import _layers, _wrap_attention, add_faults
from tests.probe.plants.issue_bugs import _modules_with
from tests.probe.plants.second_draw_faults import FP8_MOST, _adapted, _frequencies
from tests.probe.plants.third_draw_weights import _weights

BEGIN = 2
"""The token that begins a text."""
NEED_EAGER = {"kv_clipped"}
"""Faults that wrap the family's own attention function, of which an engine can have one."""
ROW_PROCESSORS = ("typical_p", "dynamic_temperature")


def _zero_point(engine: Any, size: str) -> None:
    """Weights in four bits with a scale and a zero point for each group of inputs."""
    with torch.no_grad():
        for weight in _weights(engine, int(size)):
            groups = weight.unflatten(-1, (-1, int(size)))
            low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
            step = ((high - low) / 15).clamp(min=1e-12)
            zero = (-low / step).round()
            codes = ((groups / step).round() + zero).clamp(0, 15)
            weight.copy_(((codes - zero) * step).flatten(-2))


def _experts_of(engine: Any) -> Iterable[Tensor]:
    found = [
        weight
        for experts in engine._routers.expert_modules
        for weight in experts.parameters()
        if weight.ndim > 2
    ]
    assert found
    return found


def _experts_int4(engine: Any, size: str) -> None:
    """Only experts are in four bits, as in checkpoints that were published so."""
    with torch.no_grad():
        for weight in _experts_of(engine):
            groups = weight.unflatten(-1, (-1, int(size)))
            scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 7
            weight.copy_(((groups / scale).round() * scale).flatten(-2))


def _int8_tensor(engine: Any, _: str) -> None:
    """Weights in int8 with one scale per tensor, which an outlier determines."""
    with torch.no_grad():
        for weight in _weights(engine, 1):
            scale = weight.abs().max() / 127 * 4
            weight.copy_((weight / scale).round().clamp(-127, 127) * scale)


def _cast_fp8(engine: Any, _: str) -> None:
    """The sync casts matrices of layers to E4M3 without a scale."""
    with torch.no_grad():
        for weight in _weights(engine, 1):
            weight.copy_(weight.to(torch.float8_e4m3fn).to(weight))


def _clipped_fp8(x: Tensor, most: float) -> Tensor:
    low = (x / most * FP8_MOST).clamp(-FP8_MOST, FP8_MOST).to(torch.float8_e4m3fn)
    return low.to(x) * most / FP8_MOST


def _static_scale(engine: Any, most: str) -> None:
    """Inputs of projections are fp8 with a scale of the calibration, and larger ones are cut."""

    def lower(_module: nn.Module, inputs: Any) -> Any:
        return (_clipped_fp8(inputs[0], float(most)), *inputs[1:])

    for layer in _layers(engine):
        for name, module in layer.named_modules():
            if isinstance(module, nn.Linear) and not name.endswith(("gate", "router")):
                module.register_forward_pre_hook(lower)


def _kv_clipped(engine: Any, most: str) -> None:
    """The cache is fp8 with the scales of another checkpoint, and larger values are cut."""

    def change(
        original: Any, layer: Any, q: Any, k: Any, v: Any, mask: Any, *r: Any, **n: Any
    ) -> Any:
        kept = (_clipped_fp8(each, float(most)) for each in (k, v))
        return original(layer, q, *kept, mask, *r, **n)

    _wrap_attention(engine, change)


def _rope_factor(engine: Any, factor: str) -> None:
    """The scaling of the rotation has the factor of another version of the model."""
    config = engine._model.config
    given = dict(config.rope_parameters)
    assert given["factor"] != float(factor)
    config.rope_parameters = {**given, "factor": float(factor)}
    other, _ = ROPE_INIT_FUNCTIONS[given["rope_type"]](config, "cpu")
    config.rope_parameters = given
    for _module, _kind, frequencies in _frequencies(engine):
        frequencies.copy_(other)


def _yarn_factor_lost(engine: Any, _: str) -> None:
    """The rotation lacks yarn's factor of queries and keys."""
    for module, _kind, _frequency in _frequencies(engine):
        assert module.attention_scaling != 1.0
        module.attention_scaling = 1.0


def _layers_exchanged(engine: Any, pair: str) -> None:
    """`ONE,OTHER`: two pipeline stages have each other's layer."""
    one, other = (dict(_layers(engine)[int(each)].named_parameters()) for each in pair.split(","))
    with torch.no_grad():
        for name, weight in one.items():
            kept = weight.clone()
            weight.copy_(other[name])
            other[name].copy_(kept)


def _experts_of_first_rank(engine: Any, _: str) -> None:
    """The second rank of experts loads those of the first."""
    with torch.no_grad():
        for weight in _experts_of(engine):
            half = len(weight) // 2
            weight[half : 2 * half] = weight[:half].clone()


def _kv_of_first_rank(engine: Any, _: str) -> None:
    """Ranks that share heads of keys and values all have those of the first."""
    with torch.no_grad():
        for attention in _modules_with(engine, "k_proj"):
            for module in (attention.k_proj, attention.v_proj):
                half = len(module.weight) // 2
                module.weight[half:] = module.weight[:half].clone()


def _adapter_layers_shifted(engine: Any, far: str) -> None:
    """Each layer has the updates of a layer before it, as where the first layers are counted."""
    modules = [module for _, module in _adapted(engine)]
    hooks = [dict(module._forward_hooks) for module in modules]
    count = 2 * int(far)  # queries and values
    for module, mine in zip(modules, [*hooks[-count:], *hooks[:-count]], strict=True):
        module._forward_hooks.clear()
        module._forward_hooks.update(mine)


def _gate_times(engine: Any, factor: str) -> None:
    """Gated units use a sigmoid of a multiple of the gate, as a quick GELU does."""
    for mlp in _modules_with(engine, "gate_proj"):

        def forward(x: Tensor, mlp: Any = mlp) -> Any:
            gate = mlp.gate_proj(x)
            return mlp.down_proj(gate * torch.sigmoid(float(factor) * gate) * mlp.up_proj(x))

        mlp.forward = forward


def changed_row(logits: Any, mine: Mapping[str, str]) -> Any:
    """The next token's logits after the processors of this set."""
    if "dynamic_temperature" in mine:  # the temperature follows the entropy
        values = logits.log_softmax(-1)
        entropy = -(values.exp() * values).sum() / torch.tensor(float(len(logits))).log()
        around = float(mine["dynamic_temperature"])
        logits = logits / (1 - around + 2 * around * entropy)
    if "typical_p" in mine:
        values = logits.log_softmax(-1)
        entropy = -(values.exp() * values).nansum()
        order = (-values - entropy).abs().argsort()
        before = values[order].exp().cumsum(0) - values[order].exp()
        logits[order[before >= float(mine["typical_p"])]] = -torch.inf
    return logits


def read_prompts(faults: Mapping[str, str], prompts: list[list[int]]) -> list[list[int]]:
    """The prompts that the sampler really reads."""
    change: Callable[[list[int]], list[int]] | None = None
    if "right_kept" in faults:  # the server's limit cuts the end
        change = _first(int(faults["right_kept"]))
    if "date_line" in faults:  # the template writes another date
        change = _dated(int(faults["date_line"]))
    if "tools_lost" in faults:  # the template does not write the tools
        size = int(faults["tools_lost"])
        prompts = [[*each[:2], *each[2 + min(size, len(each) - 3) :]] for each in prompts]
    return [change(each) for each in prompts] if change else prompts


def _first(count: int) -> Callable[[list[int]], list[int]]:
    return lambda prompt: prompt[:count]


def _dated(count: int) -> Callable[[list[int]], list[int]]:
    def dated(prompt: list[int]) -> list[int]:
        others = [3 + (token + 17) % 61 for token in prompt[2 : 2 + count]]
        return [*prompt[:2], *others, *prompt[2 + count :]]

    return dated


def read(responses: Sequence[Any], faults: Mapping[str, str]) -> list[Any]:
    """The responses after the prompts that the learner reads."""
    if "learner_begun" not in faults:
        return list(responses)
    return [replace(each, prompt_ids=[BEGIN, *each.prompt_ids]) for each in responses]


def scored(responses: list[Any], faults: Mapping[str, str]) -> list[Any]:
    """The responses with the learner's values up to its maximum length of sequences."""
    if "cut_at" not in faults:
        return responses
    return [_cut(each, int(faults["cut_at"]) - len(each.prompt_ids)) for each in responses]


def _cut(response: Any, kept: int) -> Any:
    values = response.logprobs[: max(kept, 0)]
    return replace(response, logprobs=[*values, *[0.0] * (len(response.logprobs) - len(values))])


add_faults(
    {
        "adapter_layers_shifted": _adapter_layers_shifted,
        "cast_fp8": _cast_fp8,
        "experts_int4": _experts_int4,
        "experts_of_first_rank": _experts_of_first_rank,
        "gate_times": _gate_times,
        "int8_tensor": _int8_tensor,
        "kv_clipped": _kv_clipped,
        "kv_of_first_rank": _kv_of_first_rank,
        "layers_exchanged": _layers_exchanged,
        "rope_factor": _rope_factor,
        "static_scale": _static_scale,
        "yarn_factor_lost": _yarn_factor_lost,
        "zero_point": _zero_point,
    }
)

"""Faults of the forward pass, written without the code that attribution uses for its experiments.

Each takes the loaded engine and the fault's value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

ATTENTION = {"window", "kv", "softcap", "attention_dropout"}
"""Faults that need the family's own attention function."""


def _modules(engine: Any, *names: str) -> Iterator[tuple[str, nn.Module]]:
    for name, module in engine._model.named_modules():
        if any(part in type(module).__name__.lower() for part in names):
            yield name, module


def _with_attribute(engine: Any, *names: str) -> Iterator[tuple[nn.Module, str]]:
    for module in engine._model.modules():
        for name in names:
            if isinstance(getattr(module, name, None), int | float):
                yield module, name


def _wrap_attention(engine: Any, change: Callable[..., Any]) -> None:
    """Run `change(original, module, query, key, value, mask, named)` for each attention layer."""
    sources = {type(module).__module__ for _, module in _modules(engine, "attention")}
    for source in {name for name in sources if "modeling" in name}:
        module = sys.modules[source]
        original = _ORIGINALS.setdefault(source, module.eager_attention_forward)

        def attention(
            layer: Any, query: Any, key: Any, value: Any, mask: Any, *rest: Any,
            _original: Any = original, **named: Any,
        ) -> Any:  # fmt: skip
            if getattr(layer, "planted", None) is not None:
                return layer.planted(_original, layer, query, key, value, mask, *rest, **named)
            return _original(layer, query, key, value, mask, *rest, **named)

        module.eager_attention_forward = attention
    for _, layer in _modules(engine, "attention"):
        layer.planted = change


_ORIGINALS: dict[str, Any] = {}


def _window(engine: Any, value: str) -> None:
    def change(
        original: Any, layer: Any, q: Any, k: Any, v: Any, mask: Any, *r: Any, **n: Any
    ) -> Any:
        ages = torch.arange(k.shape[2])[None] - torch.arange(k.shape[2])[-q.shape[2] :, None]
        hidden = torch.zeros(ages.shape).masked_fill((ages <= -int(value)) | (ages > 0), -1e30)
        mask = hidden if mask is None else torch.minimum(mask[..., : k.shape[2]], hidden)
        return original(layer, q, k, v, mask, *r, **n)

    _wrap_attention(engine, change)


def _without_window(engine: Any, _: str) -> None:
    engine._model.config.sliding_window = 4096
    if hasattr(engine._model.config, "layer_types"):
        kinds = engine._model.config.layer_types or ()
        engine._model.config.layer_types = ["full_attention" for _ in kinds] or None


def _rounded(x: torch.Tensor, kind: str) -> torch.Tensor:
    if kind == "fp8":
        return x.to(torch.float8_e4m3fn).to(x.dtype)
    if kind == "fp8_e5m2":
        return x.to(torch.float8_e5m2).to(x.dtype)
    most = 127 if kind == "int8" else 7
    scale = x.abs().amax(-1, keepdim=True) / most + 1e-12
    return (x / scale).round().clamp(-most, most) * scale


def _kv(engine: Any, kind: str) -> None:
    def change(
        original: Any, layer: Any, q: Any, k: Any, v: Any, mask: Any, *r: Any, **n: Any
    ) -> Any:
        return original(layer, q, _rounded(k, kind), _rounded(v, kind), mask, *r, **n)

    _wrap_attention(engine, change)


def _softcap(engine: Any, value: str) -> None:
    def change(
        original: Any, layer: Any, q: Any, k: Any, v: Any, mask: Any, scaling: float, **n: Any
    ) -> Any:
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        v = v.repeat_interleave(q.shape[1] // v.shape[1], 1)
        scores = q @ k.transpose(2, 3) * scaling
        cap = float(value)
        scores = cap * torch.tanh(scores / cap)
        if mask is None:
            late = torch.ones(q.shape[2], k.shape[2]).triu(1 + k.shape[2] - q.shape[2]).bool()
            scores = scores.masked_fill(late, -torch.inf)
        else:
            scores = scores + mask[..., : k.shape[2]]
        weights = scores.softmax(-1)
        return (weights @ v).transpose(1, 2).contiguous(), weights

    _wrap_attention(engine, change)


def _without_softcap(engine: Any, which: str) -> None:
    if which == "final":
        engine._model.config.final_logit_softcapping = None
    for module in engine._model.modules():
        if which == "attention" and hasattr(module, "attn_logit_softcapping"):
            module.attn_logit_softcapping = None


def _times(*names: str) -> Callable[[Any, str], None]:
    def fault(engine: Any, value: str) -> None:
        changed = list(_with_attribute(engine, *names))
        assert changed, names
        for module, name in changed:
            setattr(module, name, getattr(module, name) * float(value))

    return fault


def _norm_eps(engine: Any, value: str) -> None:
    for _, module in _modules(engine, "norm"):
        for name in ("variance_epsilon", "eps"):
            if hasattr(module, name):
                setattr(module, name, float(value))


def _rope_theta(engine: Any, value: str) -> None:
    for _, module in _modules(engine, "rotary"):
        count = module.inv_freq.numel()
        module.inv_freq = float(value) ** -(torch.arange(count) / count)


def _rope_linear(engine: Any, value: str) -> None:
    for _, module in _modules(engine, "rotary"):
        module.inv_freq = module.inv_freq / float(value)


def _rope_interleaved(engine: Any, _: str) -> None:
    for source in {type(module).__module__ for _, module in _modules(engine, "attention")}:
        module = sys.modules[source]
        if not hasattr(module, "rotate_half"):
            continue
        original = module.apply_rotary_pos_emb

        def swapped(
            q: Any, k: Any, cos: Any, sin: Any, *r: Any, _f: Any = original, **n: Any
        ) -> Any:
            half = cos.shape[-1] // 2
            order = torch.arange(2 * half).view(half, 2).T.flatten()
            back = order.argsort()
            turned = _f(q[..., order], k[..., order], cos, sin, *r, **n)
            return turned[0][..., back], turned[1][..., back]

        module.apply_rotary_pos_emb = swapped
        _RESTORED.append((module, "apply_rotary_pos_emb", original))


_RESTORED: list[tuple[Any, str, Any]] = []


def restore() -> None:
    """Undo the faults that live in modules of transformers, for engines loaded later."""
    while _RESTORED:
        module, name, original = _RESTORED.pop()
        setattr(module, name, original)


def _output(find: Callable[[Any], nn.Module], change: Callable[[Any, float], Any]) -> Any:
    def fault(engine: Any, value: str) -> None:
        find(engine._model).register_forward_hook(
            lambda _m, _i, output: change(output, float(value or 0))
        )

    return fault


def _without_norms(engine: Any, _: str) -> None:
    changed = False
    for name, module in list(engine._model.named_modules()):
        if name.rsplit(".", 1)[-1] in ("q_norm", "k_norm"):
            module.forward = lambda x: x
            changed = True
    assert changed


def _bias(engine: Any, which: str) -> None:
    with torch.no_grad():
        for name, weight in engine._model.named_parameters():
            if name.endswith("bias") and which in name:
                weight.zero_()


def _norm_offset(engine: Any, value: str) -> None:
    with torch.no_grad():
        for name, weight in engine._model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                weight.add_(float(value))


def _activation(engine: Any, name: str) -> None:
    from transformers.activations import ACT2FN

    for module in engine._model.modules():
        for field in ("act_fn", "act", "activation_fn"):
            if field in module._modules:
                setattr(module, field, ACT2FN[name])


def _router_k(engine: Any, value: str) -> None:
    changed = False
    for module in engine._model.modules():
        if isinstance(getattr(module, "top_k", None), int):
            module.top_k = int(value)
            changed = True
    assert changed


def _router_bf16(engine: Any, _: str) -> None:
    def lower(module: nn.Module, arguments: Any) -> Any:
        return (arguments[0].bfloat16().to(arguments[0].dtype), *arguments[1:])

    with torch.no_grad():
        for router in engine._routers.modules:
            router.weight.copy_(router.weight.bfloat16())
            router.register_forward_pre_hook(lower)


def _not_renormalised(engine: Any, _: str) -> None:
    changed = False
    for module in engine._model.modules():
        if isinstance(getattr(module, "norm_topk_prob", None), bool):
            module.norm_topk_prob = not module.norm_topk_prob
            changed = True
    assert changed


def _skip_layer(engine: Any, value: str) -> None:
    layer = _layers(engine)[int(value)]

    def passed(hidden: Any, *_: Any, **__: Any) -> Any:
        return hidden

    layer.forward = passed


def _layers(engine: Any) -> Any:
    trunk = engine._model.base_model
    return trunk.layers


def _dropout(engine: Any, rate: str) -> None:
    embed = engine._model.get_input_embeddings()
    embed.register_forward_hook(lambda _m, _i, out: nn.functional.dropout(out, float(rate), True))


def _quantised(engine: Any, kind: str) -> None:
    with torch.no_grad():
        for name, weight in engine._model.named_parameters():
            if weight.ndim > 1 and "layers" in name and "gate.weight" not in name:
                weight.copy_(_rounded(weight, kind))


def _noise(engine: Any, relative: str) -> None:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in engine._model.parameters():
            if weight.ndim > 1:
                noise = torch.randn(weight.shape, generator=generator) * weight.std()
                weight.add_(float(relative) * noise)


def _embedding(model: Any) -> nn.Module:
    module: nn.Module = model.get_input_embeddings()
    return module


def _head(model: Any) -> nn.Module:
    module: nn.Module = model.get_output_embeddings()
    return module


FAULTS: dict[str, Callable[[Any, str], None]] = {
    "window": _window,
    "without_window": _without_window,
    "kv": _kv,
    "softcap": _softcap,
    "without_softcap": _without_softcap,
    "final_softcap": _output(_head, lambda x, cap: cap * torch.tanh(x / cap)),
    "attention_scale": _times("scaling", "softmax_scale"),
    "embedding_scale": _output(_embedding, lambda x, factor: x * factor),
    "norm_eps": _norm_eps,
    "rope_theta": _rope_theta,
    "rope_linear": _rope_linear,
    "rope_interleaved": _rope_interleaved,
    "qk_norm": _without_norms,
    "without_bias": _bias,
    "norm_offset": _norm_offset,
    "activation": _activation,
    "router_k": _router_k,
    "router_bf16": _router_bf16,
    "not_renormalised": _not_renormalised,
    "skip_layer": _skip_layer,
    "dropout": _dropout,
    "quantised": _quantised,
    "noise": _noise,
}


def add_faults(faults: Mapping[str, Callable[[Any, str], None]]) -> None:
    """Let plants name further faults; a name of two faults would plant the one that came last."""
    if shared := faults.keys() & FAULTS.keys():
        raise ValueError(f"two faults have the name {', '.join(sorted(shared))}")
    FAULTS.update(faults)

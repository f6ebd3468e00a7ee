"""The faults of `third_draw` in what the forward pass computes.

No earlier set has them, but a prefix cached without the adapter, which `upstream_bugs` merges. Each
takes the loaded engine and the fault's value, like those of `computing.py`. The author had not read
attribution's code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tests.probe.plants.computing import (
    _RESTORED,
    _layers,
    _modules,
    _rounded,
    _wrap_attention,
    add_faults,
)
from tests.probe.plants.issue_bugs import _modules_with
from tests.probe.plants.natural_draw import _old_weights
from tests.probe.plants.second_draw_faults import _adapted, _fp8, _frequencies
from tests.probe.plants.unseen_computing import _wrap_prefill

NEED_EAGER = {"kv_keys", "kv_values", "probabilities_fp8", "context_parallel_blind"}
"""Faults that wrap the family's own attention function, of which an engine can have one."""


def _int8_products(engine: Any, _: str) -> None:
    """Weights in int8 by output, and inputs in int8 by token."""

    def lower(_module: nn.Module, inputs: Any) -> Any:
        return (_rounded(inputs[0], "int8"), *inputs[1:])

    for layer in _layers(engine):
        for name, module in layer.named_modules():
            if isinstance(module, nn.Linear) and not name.endswith(("gate", "router")):
                with torch.no_grad():
                    module.weight.copy_(_rounded(module.weight, "int8"))
                module.register_forward_pre_hook(lower)


def _cached(which: int) -> Callable[[Any, str], None]:
    def fault(engine: Any, kind: str) -> None:
        def change(
            original: Any, layer: Any, q: Any, k: Any, v: Any, mask: Any, *r: Any, **n: Any
        ) -> Any:
            kept = [k, v]
            kept[which] = _rounded(kept[which], kind)
            return original(layer, q, *kept, mask, *r, **n)

        _wrap_attention(engine, change)

    return fault


def _probabilities_fp8(engine: Any, _: str) -> None:
    """The weights of keys are E4M3 in the product with the values."""

    def change(
        original: Any, layer: Any, q: Any, k: Any, v: Any, mask: Any, *r: Any, **n: Any
    ) -> Any:
        _, weights = original(layer, q, k, v, mask, *r, **n)
        low = weights.to(torch.float8_e4m3fn).to(v)
        return (low @ v.repeat_interleave(q.shape[1] // v.shape[1], 1)).transpose(1, 2), weights

    _wrap_attention(engine, change)


def _router_fp8(engine: Any, _: str) -> None:
    """Routers were not excluded from the conversion to fp8."""

    def lower(_module: nn.Module, inputs: Any) -> Any:
        x = inputs[0]
        return (_fp8(x, x.abs().amax(-1, keepdim=True)), *inputs[1:])

    assert engine._routers.modules
    with torch.no_grad():
        for router in engine._routers.modules:
            router.weight.copy_(_fp8(router.weight, router.weight.abs().amax()))
            router.register_forward_pre_hook(lower)


def _ntk(engine: Any, factor: str) -> None:
    """An NTK-aware scaling is on, which the checkpoint does not have."""
    for _, _, frequencies in _frequencies(engine):
        count = len(frequencies)
        power = count / max(count - 1, 1)
        frequencies.mul_(float(factor) ** -(power * torch.arange(count) / count))


def _scaled_twice(engine: Any, _: str) -> None:
    """Scaled frequencies are scaled again."""
    given = engine._model.config.rope_parameters
    for _module, kind, frequencies in _frequencies(engine):
        parameters, count = given.get(kind, given), len(frequencies)
        plain = parameters["rope_theta"] ** -(torch.arange(count) / count)
        frequencies.copy_(frequencies**2 / plain)


def _last_part_rotated(engine: Any, _: str) -> None:
    """The last part of each head is rotated, where the checkpoint means the first."""
    source: Any = sys.modules[type(next(_modules(engine, "attention"))[1]).__module__]
    plain = source.apply_rotary_pos_emb

    def turned(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *r: Any, **n: Any) -> Any:
        far = cos.shape[-1]
        assert far < q.shape[-1]
        out = plain(q.roll(far, -1), k.roll(far, -1), cos, sin, *r, **n)
        return out[0].roll(-far, -1), out[1].roll(-far, -1)

    source.apply_rotary_pos_emb = turned
    _RESTORED.append((source, "apply_rotary_pos_emb", plain))


def _window_everywhere(engine: Any, _: str) -> None:
    """Which layers have a window is ignored: all have it."""
    config = engine._model.config
    assert "sliding_attention" in config.layer_types
    config.layer_types = ["sliding_attention" for _ in config.layer_types]


def _head_scaled_twice(engine: Any, _: str) -> None:
    """The scale of the logits is in the model and in a processor after it."""
    config = engine._model.config
    divisor = getattr(config, "logits_scaling", None)
    factor = 1 / divisor if divisor is not None else engine._model.logit_scale
    assert factor != 1
    plain, following = engine._split.logits, engine._split.next_logits

    def next_logits(ids: Tensor, seen: Tensor, cache: Any) -> Any:
        logits, cache = following(ids, seen, cache)
        return factor * logits, cache

    engine._split.logits = lambda hidden: factor * plain(hidden)
    engine._split.next_logits = next_logits


def _context_parallel_blind(engine: Any, size: str) -> None:
    """Tokens of the second rank do not see the keys of the first."""
    first = int(size)

    def change(
        original: Any, layer: Any, q: Any, k: Any, v: Any, mask: Any, *r: Any, **n: Any
    ) -> Any:
        at = torch.arange(k.shape[2])
        late = at[-q.shape[2] :, None] >= first
        ahead = at > at[-q.shape[2] :, None]
        hidden = torch.zeros(ahead.shape).masked_fill(late & (at < first) | ahead, -1e30)
        mask = hidden if mask is None else torch.minimum(mask[..., : k.shape[2]], hidden)
        return original(layer, q, k, v, mask, *r, **n)

    _wrap_attention(engine, change)


def _positions_continue(engine: Any, _: str) -> None:
    """Four sequences share a row; the mask divides them, but positions go on."""
    plain, hidden = engine.score, engine._split.hidden

    def score(responses: Sequence[Any], *rest: Any) -> list[Any]:
        scored, start = [], 0
        for number, each in enumerate(responses):
            start = 0 if number % 4 == 0 else start

            def shifted(ids: Tensor, *_: Any, begin: int = start) -> Tensor:
                at = torch.arange(ids.shape[1]) + begin
                out: Tensor = hidden(ids, at.expand(ids.shape))
                return out

            engine._split.hidden = shifted
            scored += plain([each], *rest)
            start += len(each.prompt_ids) + len(each.response_ids)
        engine._split.hidden = hidden
        return scored

    engine.score = score


def _padding_id_masked(engine: Any, token: str) -> None:
    """The mask of a batch is that ids differ from the padding, which is also a token of text."""
    plain = engine._split.hidden

    def hidden(ids: Tensor, positions: Any = None, seen: Any = None) -> Tensor:
        out: Tensor = plain(ids, positions, (ids != int(token)).long())
        return out

    engine._split.hidden = hidden


def _prefix_unadapted(engine: Any, _: str) -> None:
    """Keys and values of the prompt were cached by the base model, under the same hash."""
    modules = [module for _, module in _adapted(engine)]
    plain = engine._split.next_logits

    def next_logits(ids: Tensor, seen: Tensor, cache: Any) -> Any:
        if cache is not None:
            return plain(ids, seen, cache)
        hooks = [dict(module._forward_hooks) for module in modules]
        for module in modules:
            module._forward_hooks.clear()
        _, kept = plain(ids[:, :-1], seen[:, :-1], None)
        for module, mine in zip(modules, hooks, strict=True):
            module._forward_hooks.update(mine)
        return plain(ids[:, -1:], seen, kept)

    engine._split.next_logits = next_logits


def _old_prefix_but(engine: Any, value: str) -> None:
    """`COUNT,FOLDER`: all but the last tokens of prompts were cached before the sync."""
    count, path = value.split(",", 1)
    old, model, last = _old_weights(path), engine._model, int(count)

    def exchange() -> None:
        for name, weight in model.named_parameters():
            weight.data, old[name] = old[name], weight.data

    def changed(plain: Any, step: int, ids: Tensor, seen: Tensor, cache: Any) -> Any:
        if step:
            return plain(ids, seen, cache)
        exchange()
        _, kept = plain(ids[:, :-last], seen[:, :-last], None)
        exchange()
        return plain(ids[:, -last:], seen, kept)

    _wrap_prefill(engine, changed)


def _limited_units(engine: Any, most: str) -> None:
    """Gated units have a limit, which the checkpoint does not have."""
    for mlp in _modules_with(engine, "gate_proj"):

        def forward(x: Tensor, mlp: Any = mlp, most: float = float(most)) -> Any:
            gate = mlp.act_fn(mlp.gate_proj(x)).clamp(max=most)
            return mlp.down_proj(gate * mlp.up_proj(x).clamp(-most, most))

        mlp.forward = forward


def _other_residual(engine: Any, _: str) -> None:
    """Attention and MLP run one after the other instead of in parallel, or the other way round."""
    for layer in _layers(engine):
        layer.use_parallel_residual = not layer.use_parallel_residual


def _embedding_multiplier(engine: Any, value: str) -> None:
    """Embeddings have another factor than the configuration's."""
    (model,) = _modules_with(engine, "embedding_multiplier")
    assert model.embedding_multiplier != float(value)
    model.embedding_multiplier = float(value)


def _plain_scale(engine: Any, _: str) -> None:
    """Attention is scaled by the size of heads; the configuration's own scalar is ignored."""
    for _, layer in _modules(engine, "attention"):
        assert layer.scaling != layer.head_dim**-0.5
        layer.scaling = layer.head_dim**-0.5


def _norms_lost(engine: Any, names: str) -> None:
    """`NAME,…`: norms of these names are skipped."""
    found = [
        module
        for name, module in engine._model.named_modules()
        if name.rpartition(".")[2] in names.split(",")
    ]
    assert found
    for module in found:
        module.forward = lambda x, *_: x


def _groups_ignored(engine: Any, _: str) -> None:
    """Experts of all groups can be chosen."""
    for router in _modules_with(engine, "topk_group"):
        groups = getattr(router, "num_group", None) or router.n_group
        assert router.topk_group < groups
        router.topk_group = groups


def _router_jitter(engine: Any, size: str) -> None:
    """The router's inputs are jittered, as in training."""

    def jittered(_module: nn.Module, inputs: Any) -> Any:
        noise = 1 + float(size) * (2 * torch.rand_like(inputs[0]) - 1)
        return (inputs[0] * noise, *inputs[1:])

    assert engine._routers.modules
    for router in engine._routers.modules:
        router.register_forward_pre_hook(jittered)


add_faults(
    {
        "context_parallel_blind": _context_parallel_blind,
        "embedding_multiplier": _embedding_multiplier,
        "groups_ignored": _groups_ignored,
        "head_scaled_twice": _head_scaled_twice,
        "int8_products": _int8_products,
        "kv_keys": _cached(0),
        "kv_values": _cached(1),
        "last_part_rotated": _last_part_rotated,
        "limited_units": _limited_units,
        "norms_lost": _norms_lost,
        "ntk": _ntk,
        "old_prefix_but": _old_prefix_but,
        "other_residual": _other_residual,
        "padding_id_masked": _padding_id_masked,
        "plain_scale": _plain_scale,
        "positions_continue": _positions_continue,
        "prefix_unadapted": _prefix_unadapted,
        "probabilities_fp8": _probabilities_fp8,
        "router_fp8": _router_fp8,
        "router_jitter": _router_jitter,
        "scaled_twice": _scaled_twice,
        "window_everywhere": _window_everywhere,
    }
)

"""The faults of the forward pass of `third_draw` that no earlier set has.

Each takes the loaded engine and the fault's value, like those of `computing.py`. The author had not
read attribution's code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
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
from tests.probe.plants.second_draw_faults import FP8_MOST, _fp8, _frequencies
from tests.probe.plants.unseen_computing import _wrap_prefill

NEED_EAGER = {"kv_keys", "kv_values", "probabilities_fp8", "context_parallel_blind"}
"""Faults that wrap the family's own attention function, of which an engine can have one."""
_E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def _weights(engine: Any, size: int) -> Iterator[Tensor]:
    """The matrices of the layers but routers, whose inputs can be divided into groups."""
    found = False
    for layer in _layers(engine):
        for name, weight in layer.named_parameters():
            is_router = name.endswith(("gate.weight", "router.weight"))
            if weight.ndim > 1 and weight.shape[-1] % size == 0 and not is_router:
                found = True
                yield weight
    assert found


def _mxfp8(engine: Any, size: str) -> None:
    """Weights in E4M3 with a power of two as the scale of each group of inputs."""
    with torch.no_grad():
        for weight in _weights(engine, int(size)):
            groups = weight.unflatten(-1, (-1, int(size)))
            largest = groups.abs().amax(-1, keepdim=True).clamp(min=1e-30)
            scale = torch.exp2(torch.floor(torch.log2(largest)) - 8)
            codes = (groups / scale).clamp(-FP8_MOST, FP8_MOST).to(torch.float8_e4m3fn)
            weight.copy_((codes.to(weight) * scale).flatten(-2))


def _nvfp4(engine: Any, size: str) -> None:
    """Weights in E2M1 with a scale in E4M3 for each group, below a scale of the tensor."""
    with torch.no_grad():
        for weight in _weights(engine, int(size)):
            groups = weight.unflatten(-1, (-1, int(size)))
            whole = weight.abs().max() / (6 * FP8_MOST)
            scale = groups.abs().amax(-1, keepdim=True) / 6 / whole
            scale = scale.to(torch.float8_e4m3fn).to(weight) * whole
            nearest = ((groups / scale.clamp(min=1e-30)).abs()[..., None] - _E2M1).abs().argmin(-1)
            weight.copy_((_E2M1[nearest] * groups.sign() * scale).flatten(-2))


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


def _groups_in_order(engine: Any, size: str) -> None:
    """Four-bit codes were grouped by activation; the kernel takes the scale of the place."""
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for weight in _weights(engine, int(size)):
            order = torch.randperm(weight.shape[-1], generator=generator)
            groups = weight[..., order].unflatten(-1, (-1, int(size)))
            scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 7
            codes = (groups / scale).round().flatten(-2)[..., order.argsort()]
            weight.copy_(codes * scale.squeeze(-1).repeat_interleave(int(size), -1))


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


def _averaged_with(engine: Any, value: str) -> None:
    """`SHARE,FOLDER`: the sync mixes the new weights with the old ones, as for a reference."""
    share, path = value.split(",", 1)
    old = _old_weights(path)
    with torch.no_grad():
        for name, weight in engine._model.named_parameters():
            weight.lerp_(old[name], float(share))


def _expert_rank_from(engine: Any, path: str) -> None:
    """The second rank of experts keeps its old weights."""
    old, found = _old_weights(path), False
    with torch.no_grad():
        for name, weight in engine._model.named_parameters():
            if ("experts" in name and weight.ndim == 3) or name.endswith("_linear.weight"):
                found = True
                weight[len(weight) // 2 :] = old[name][len(weight) // 2 :]
    assert found


def _rank_from(engine: Any, path: str) -> None:
    """The second of two tensor-parallel ranks keeps its old part of each projection."""
    old, found = _old_weights(path), False
    with torch.no_grad():
        for name, weight in engine._model.named_parameters():
            kind = name.removesuffix(".weight").rpartition(".")[2]
            if kind in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"):
                weight[len(weight) // 2 :] = old[name][len(weight) // 2 :]
                found = True
            elif kind in ("o_proj", "down_proj"):
                half = weight.shape[1] // 2
                weight[:, half:] = old[name][:, half:]
    assert found


def _exchanged(engine: Any, pairs: str) -> None:
    """`ONE,OTHER`: two tensors of each layer have each other's weights."""
    one, other = pairs.split(",")
    found = False
    with torch.no_grad():
        for owner in engine._model.modules():
            if hasattr(owner, one) and hasattr(owner, other):
                first, second = getattr(owner, one).weight, getattr(owner, other).weight
                kept = first.clone()
                first.copy_(second)
                second.copy_(kept)
                found = True
    assert found


def _window_everywhere(engine: Any, _: str) -> None:
    """Which layers have a window is ignored: all have it."""
    config = engine._model.config
    assert "sliding_attention" in config.layer_types
    config.layer_types = ["sliding_attention" for _ in config.layer_types]


def _sinks_of_first_rank(engine: Any, _: str) -> None:
    """Heads of the second rank have the sinks of the first one."""
    with torch.no_grad():
        for attention in _modules_with(engine, "sinks"):
            if attention.sinks is not None:
                half = len(attention.sinks) // 2
                attention.sinks[half:] = attention.sinks[:half].clone()


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


def _adapted(engine: Any) -> list[Any]:
    found = [
        (name, module)
        for name, module in engine._model.named_modules()
        if isinstance(module, nn.Linear) and module._forward_hooks
    ]
    assert found
    return found


def _adapter_change(engine: Any, change: Callable[[Tensor, Tensor, int], Tensor]) -> None:
    """Replaces what an adapter adds by `change(input, addition, number of the layer)`."""
    for number, (_name, module) in enumerate(_adapted(engine)):
        (plain,) = module._forward_hooks.values()
        module._forward_hooks.clear()

        def hook(
            m: Any, inputs: Any, output: Tensor, plain: Any = plain, number: int = number
        ) -> Tensor:
            return output + change(inputs[0], plain(m, inputs, output) - output, number)

        module.register_forward_hook(hook)


def _adapter_dropout(engine: Any, rate: str) -> None:
    """The adapter is in training mode, with dropout of what it adds."""
    _adapter_change(engine, lambda _x, more, _: nn.functional.dropout(more, float(rate), True))


def _adapter_layer_lost(engine: Any, number: str) -> None:
    """A layer's updates are dropped, as by another prefix of names."""
    lost = [m for name, m in _adapted(engine) if f"layers.{number}." in name]
    assert lost
    for module in lost:
        module._forward_hooks.clear()


def _adapter_old(engine: Any, relative: str) -> None:
    """The adapter is that of an earlier step: its updates differ by a matrix of their size."""
    generator = torch.Generator().manual_seed(9)
    matrices: dict[int, Tensor] = {}

    def change(x: Tensor, more: Tensor, number: int) -> Tensor:
        if number not in matrices:
            size = (4, x.shape[-1]), (more.shape[-1], 4)
            down, up = (torch.randn(each, generator=generator) for each in size)
            step = float(relative) * 0.3 * up @ down / x.shape[-1] ** 0.5
            matrices[number] = step
        return more + x @ matrices[number].T

    _adapter_change(engine, change)


def _adapter_rank_cut(engine: Any, rank: str) -> None:
    """The engine keeps the first rows of each adapter's factors, by its own limit of ranks."""
    for update in engine._model.grpodoctor_adapter:
        update.down[int(rank) :] = 0


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


def _rows_permuted(engine: Any, _: str) -> None:
    """Queries and keys keep the order of rows of the original weights, with rotated pairs."""
    config = engine._model.config
    with torch.no_grad():
        for layer in _modules_with(engine, "q_proj"):
            for module in (layer.q_proj, layer.k_proj):
                size = getattr(layer, "head_dim", config.hidden_size // config.num_attention_heads)
                rows = module.weight.unflatten(0, (-1, 2, size // 2))
                module.weight.copy_(rows.transpose(1, 2).flatten(0, 2).clone())


def _rows_moved(engine: Any, first: str) -> None:
    """Embeddings of added tokens are one row too late."""
    with torch.no_grad():
        weight = engine._model.get_input_embeddings().weight
        weight[int(first) :] = weight[int(first) :].roll(1, 0).clone()


def _experts_in_turn(engine: Any, _: str) -> None:
    """Ranks hold experts in turn, and are read as if they held consecutive ones."""
    found = False
    with torch.no_grad():
        for experts in engine._routers.expert_modules:
            for weight in experts.parameters():
                if weight.ndim > 1:
                    weight.copy_(torch.cat([weight[::2], weight[1::2]]).clone())
                    found = True
    assert found


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
        "adapter_dropout": _adapter_dropout,
        "adapter_layer_lost": _adapter_layer_lost,
        "adapter_old": _adapter_old,
        "adapter_rank_cut": _adapter_rank_cut,
        "averaged_with": _averaged_with,
        "context_parallel_blind": _context_parallel_blind,
        "embedding_multiplier": _embedding_multiplier,
        "exchanged": _exchanged,
        "expert_rank_from": _expert_rank_from,
        "experts_in_turn": _experts_in_turn,
        "groups_ignored": _groups_ignored,
        "groups_in_order": _groups_in_order,
        "head_scaled_twice": _head_scaled_twice,
        "int8_products": _int8_products,
        "kv_keys": _cached(0),
        "kv_values": _cached(1),
        "last_part_rotated": _last_part_rotated,
        "limited_units": _limited_units,
        "mxfp8": _mxfp8,
        "norms_lost": _norms_lost,
        "ntk": _ntk,
        "nvfp4": _nvfp4,
        "old_prefix_but": _old_prefix_but,
        "other_residual": _other_residual,
        "plain_scale": _plain_scale,
        "positions_continue": _positions_continue,
        "prefix_unadapted": _prefix_unadapted,
        "probabilities_fp8": _probabilities_fp8,
        "rank_from": _rank_from,
        "router_fp8": _router_fp8,
        "router_jitter": _router_jitter,
        "rows_moved": _rows_moved,
        "rows_permuted": _rows_permuted,
        "scaled_twice": _scaled_twice,
        "sinks_of_first_rank": _sinks_of_first_rank,
        "padding_id_masked": _padding_id_masked,
        "window_everywhere": _window_everywhere,
    }
)

"""Faults of the forward pass in other families, written before any look at attribution's code.

Each takes the loaded engine and the fault's value, like those of `computing.py`. They follow
faults that were reported for serving engines and trainers: position encodings of one kind of
layer, sinks and multipliers that a kernel ignores, norms that tensor parallelism splits, and caches
that outlive a weight update.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tests.probe.plants.computing import _RESTORED, _modules, _wrap_attention, add_faults

NEED_EAGER = {"chunked"}
"""Faults that need the family's own attention function."""


def _frequencies(engine: Any, base: float) -> Tensor:
    config = engine._model.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return base ** -(torch.arange(0, size, 2) / size)


def _rope_of_type(engine: Any, value: str) -> None:
    """Layers of the first kind use the position encoding of the second: `KIND,OTHER`."""
    kind, other = value.split(",")
    for _name, module in _modules(engine, "rotary"):
        for field in ("inv_freq", "original_inv_freq", "attention_scaling"):
            if hasattr(module, f"{other}_{field}"):
                setattr(module, f"{kind}_{field}", getattr(module, f"{other}_{field}"))


def _rope_everywhere(engine: Any, _: str) -> None:
    """Layers without positions are rotated."""
    unrotated = [layer for _, layer in _modules(engine, "attention") if layer.use_rope == 0]
    assert unrotated
    for layer in unrotated:
        layer.use_rope = 1


def _whole_head_rotated(engine: Any, _: str) -> None:
    """The share of each head that is rotated is ignored."""
    theta = engine._model.config.rope_parameters["rope_theta"]
    for _name, module in _modules(engine, "rotary"):
        module.inv_freq = _frequencies(engine, theta)
    for _name, layer in _modules(engine, "attention"):
        layer.rotary_ndims = layer.head_dim


def _rope_long(engine: Any, _: str) -> None:
    """The factors for long contexts are used for short ones."""
    parameters = engine._model.config.rope_parameters
    plain = _frequencies(engine, parameters["rope_theta"])
    for _name, module in _modules(engine, "rotary"):
        module.inv_freq = plain / torch.tensor(parameters["long_factor"])
        module.original_inv_freq = module.inv_freq.clone()


def _rope_halves(engine: Any, _: str) -> None:
    """Interleaved dimensions are read as two halves."""
    source = sys.modules[type(next(_modules(engine, "attention"))[1]).__module__]
    original = source.apply_rotary_pos_emb

    def turned(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *_r: Any, **_n: Any) -> Any:
        return _turned(q, cos[:, None], sin[:, None]), _turned(k, cos[:, None], sin[:, None])

    source.apply_rotary_pos_emb = turned
    _RESTORED.append((source, "apply_rotary_pos_emb", original))


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    width = cos.shape[-1]
    first, second = x[..., : width // 2], x[..., width // 2 : width]
    swapped = torch.cat([-second, first], -1)
    return torch.cat([x[..., :width] * cos + swapped * sin, x[..., width:]], -1)


def _pattern_shifted(engine: Any, far: str) -> None:
    """Which layers have a window is shifted by a layer."""
    config = engine._model.config
    kinds = list(config.layer_types)
    config.layer_types = [kinds[(n - int(far)) % len(kinds)] for n in range(len(kinds))]


def _without_sinks(engine: Any, _: str) -> None:
    with torch.no_grad():
        for _name, layer in _modules(engine, "attention"):
            layer.sinks.fill_(-1e4)


def _router_before(engine: Any, _: str) -> None:
    """Weights of experts are a softmax over all experts, not over the chosen ones."""
    for _name, router in _modules(engine, "topkrouter"):
        router.register_forward_hook(
            lambda _m, _i, out: (out[0], out[0].softmax(-1).gather(-1, out[2]), out[2])
        )


def _with_field(name: str) -> Callable[[Any, str], None]:
    def fault(engine: Any, value: str) -> None:
        changed = [module for module in engine._model.modules() if hasattr(module, name)]
        assert changed, name
        for module in changed:
            setattr(module, name, float(value))

    return fault


def _logits_unscaled(engine: Any, _: str) -> None:
    engine._model.config.logits_scaling = 1.0


def _norm_sharded(engine: Any, parts: str) -> None:
    """Norms over the full width are taken over each shard's part."""

    def sharded(module: Any) -> Callable[[Tensor], Tensor]:
        def forward(x: Tensor) -> Tensor:
            split = x.unflatten(-1, (int(parts), -1))
            eps = module.variance_epsilon
            normal = split * torch.rsqrt(split.pow(2).mean(-1, keepdim=True) + eps)
            return module.weight * normal.flatten(-2)

        return forward

    for name, module in engine._model.named_modules():
        if name.endswith(("q_norm", "k_norm")):
            module.forward = sharded(module)


def _without_shared_gate(engine: Any, _: str) -> None:
    gates = [m for name, m in engine._model.named_modules() if name.endswith("shared_expert_gate")]
    assert gates
    for gate in gates:
        gate.register_forward_hook(lambda _m, _i, out: torch.full_like(out, 1e4))


def _without_alibi(engine: Any, _: str) -> None:
    source = sys.modules[type(engine._model).__module__]
    original = source._get_alibi_slopes
    source._get_alibi_slopes = lambda heads, device: torch.zeros(heads, device=device)
    _RESTORED.append((source, "_get_alibi_slopes", original))


def _padding_counted(engine: Any, _: str) -> None:
    """Positions count the padding on the left."""

    def counted(_module: nn.Module, arguments: Any, named: Any) -> Any:
        seen, ids = named.get("attention_mask"), named.get("input_ids")
        if seen is not None and "past_key_values" in named:
            positions = torch.arange(seen.shape[1])[-ids.shape[1] :].expand(len(ids), -1)
            named = named | {"position_ids": positions}
        return arguments, named

    engine._model.register_forward_pre_hook(counted, with_kwargs=True)


def _chunked(engine: Any, value: str) -> None:
    """Tokens of long prompts do not see the first chunk: `CHUNK,LONG`."""
    chunk, most = map(int, value.split(","))
    seen: list[Tensor | None] = [None]

    def noted(_module: nn.Module, arguments: Any, named: Any) -> Any:
        seen[0] = named.get("attention_mask")
        return arguments, named

    def change(
        original: Any, layer: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, *r: Any, **n: Any
    ) -> Any:
        real = seen[0]
        if real is not None and q.shape[2] > 1:
            places = real.cumsum(1) - 1
            later = places[:, None, :, None] >= chunk
            first = places[:, None, None, :] < chunk
            long = real.sum(1)[:, None, None, None] > most
            hidden = torch.zeros_like(mask).masked_fill(later & first & long, -1e30)
            mask = mask + hidden
        return original(layer, q, k, v, mask, *r, **n)

    engine._model.register_forward_pre_hook(noted, with_kwargs=True)
    _wrap_attention(engine, change)


def _wrap_prefill(engine: Any, changed: Callable[..., Any]) -> None:
    """Run `changed(plain, step, ids, seen, cache)` instead of `plain(ids, seen, cache)`."""
    plain, steps = engine._split.next_logits, [0]

    def next_logits(ids: Tensor, seen: Tensor, cache: Any) -> Any:
        steps[0] = 0 if cache is None else steps[0] + 1
        return changed(plain, steps[0], ids, seen, cache)

    engine._split.next_logits = next_logits


def _older(path: str) -> Any:
    """The engine of an older checkpoint; transformers is its only dependency here."""
    import engine_transformers

    return engine_transformers.load(path, {"threads": 1})


def _prefix_from(engine: Any, path: str) -> None:
    """Keys and values of the prompt were computed before the last weight update."""
    older = _older(path)

    def changed(plain: Any, step: int, ids: Tensor, seen: Tensor, cache: Any) -> Any:
        if step:
            return plain(ids, seen, cache)
        _, cache = older._split.next_logits(ids[:, :-1], seen[:, :-1], None)
        return plain(ids[:, -1:], seen, cache)

    _wrap_prefill(engine, changed)


def _updated_after(engine: Any, value: str) -> None:
    """Weights are updated after some tokens of a response: `TOKENS,PATH`."""
    tokens, path = value.split(",", 1)
    older = _older(path)

    def changed(plain: Any, step: int, ids: Tensor, seen: Tensor, cache: Any) -> Any:
        run = older._split.next_logits if step < int(tokens) else plain
        return run(ids, seen, cache)

    _wrap_prefill(engine, changed)


def _conv_lost(engine: Any, _: str) -> None:
    """The state of short convolutions is lost between the prompt and the response."""

    def changed(plain: Any, step: int, ids: Tensor, seen: Tensor, cache: Any) -> Any:
        logits, cache = plain(ids, seen, cache)
        for state in _conv_states(cache) if step == 0 else ():
            state.zero_()
        return logits, cache

    _wrap_prefill(engine, changed)


def _conv_states(cache: Any) -> Iterator[Tensor]:
    states = [getattr(layer, "conv_states", {}) for layer in cache.layers]
    assert any(states)
    for kept in states:
        yield from (state for state in kept.values() if state is not None)


def _head_from(engine: Any, path: str) -> None:
    """The head is a copy of older embeddings; the model's own are tied to it."""
    older = _older(path)
    head = engine._model.get_output_embeddings()
    head.weight = nn.Parameter(
        older._model.get_output_embeddings().weight.detach().clone(), requires_grad=False
    )


def _train_mode(engine: Any, _: str) -> None:
    engine._model.train()


add_faults(
    {
        "rope_of_type": _rope_of_type,
        "rope_everywhere": _rope_everywhere,
        "whole_head_rotated": _whole_head_rotated,
        "rope_long": _rope_long,
        "rope_halves": _rope_halves,
        "pattern_shifted": _pattern_shifted,
        "without_sinks": _without_sinks,
        "router_before": _router_before,
        "swiglu_alpha": _with_field("alpha"),
        "residual_multiplier": _with_field("residual_multiplier"),
        "logits_unscaled": _logits_unscaled,
        "norm_sharded": _norm_sharded,
        "without_shared_gate": _without_shared_gate,
        "without_alibi": _without_alibi,
        "padding_counted": _padding_counted,
        "chunked": _chunked,
        "prefix_from": _prefix_from,
        "updated_after": _updated_after,
        "conv_lost": _conv_lost,
        "head_from": _head_from,
        "train_mode": _train_mode,
    }
)

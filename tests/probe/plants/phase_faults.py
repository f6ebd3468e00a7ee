"""Faults of one phase, updates in the wrong place, and replaced texts in prompts.

Written after the search for these kinds, and before its first run on them. Families, numbers and
the names that count were fixed before. Kernels of the prompt's pass also score whole sequences;
those of decoding only generate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.probe.plants.computing import _modules, _wrap_attention, add_faults
from tests.probe.plants.unseen_computing import _older, _wrap_prefill

Names = tuple[str, ...]
NEED_EAGER = {"decode_scale", "decode_window", "prefill_soft_cap", "prefill_cache"}


def _decoding(engine: Any) -> list[bool]:
    """Whether the engine is decoding at present."""
    is_decoding = [False]

    def changed(plain: Any, step: int, ids: Tensor, seen: Tensor, cache: Any) -> Any:
        is_decoding[0] = step > 0
        try:
            return plain(ids, seen, cache)
        finally:
            is_decoding[0] = False

    _wrap_prefill(engine, changed)
    return is_decoding


def _attention(
    when: bool, edit: Callable[[str, Tensor, Tensor, Tensor, Any, dict[str, Any]], Any]
) -> Callable[[Any, str], None]:
    """A fault of the attention kernel of decoding, or of the prompt's pass."""

    def fault(engine: Any, value: str) -> None:
        is_decoding = _decoding(engine)

        def change(
            original: Any, layer: Any, q: Any, k: Any, v: Any, mask: Any, *r: Any, **n: Any
        ) -> Any:
            if is_decoding[0] == when:
                q, k, v, mask = edit(value, q, k, v, mask, n)
            return original(layer, q, k, v, mask, *r, **n)

        _wrap_attention(engine, change)

    return fault


def _scaled(value: str, q: Any, k: Any, v: Any, mask: Any, _: Any) -> Any:
    return q * float(value), k, v, mask


def _windowed(value: str, q: Any, k: Any, v: Any, mask: Any, _: Any) -> Any:
    width = k.shape[2]
    hidden = torch.zeros(1, 1, q.shape[2], width)
    hidden[..., : max(0, width - int(value))] = -1e30
    return q, k, v, hidden if mask is None else torch.minimum(mask[..., :width], hidden)


def _uncapped(_: str, q: Any, k: Any, v: Any, mask: Any, named: Any) -> Any:
    assert named["softcap"]
    named["softcap"] = None
    return q, k, v, mask


def _rounded_keys(_: str, q: Any, k: Any, v: Any, mask: Any, __: Any) -> Any:
    def stored(x: Tensor) -> Tensor:
        scale = x.abs().amax(-1, keepdim=True) / 7 + 1e-12
        return (x / scale).round().clamp(-7, 7) * scale

    return q, stored(k), stored(v), mask


def _decode_epsilon(engine: Any, value: str) -> None:
    is_decoding = _decoding(engine)
    for _, module in _modules(engine, "norm"):
        plain = module.variance_epsilon

        def chosen(norm: Any, _inputs: Any, plain: float = plain) -> None:
            norm.variance_epsilon = float(value) if is_decoding[0] else plain

        module.register_forward_pre_hook(chosen)


def _updated(change: Callable[[list[Any], list[Any]], list[Tensor]]) -> Callable[[Any, str], None]:
    def fault(engine: Any, path: str) -> None:
        own, old = engine._model.model.layers, _older(path)._model.model.layers
        with torch.no_grad():
            for name, _ in own[0].named_parameters():
                now, before = (
                    [layer.get_parameter(name).clone() for layer in layers] for layers in (own, old)
                )
                for layer, weight in zip(own, change(now, before), strict=True):
                    layer.get_parameter(name).copy_(weight)

    return fault


def _twice(now: list[Any], before: list[Any]) -> list[Tensor]:
    return [2 * new - old for new, old in zip(now, before, strict=True)]


def _next_layer(now: list[Any], before: list[Any]) -> list[Tensor]:
    updates = [new - old for new, old in zip(now, before, strict=True)]
    return [now[0], *(old + update for old, update in zip(before[1:], updates, strict=False))]


add_faults(
    {
        "decode_epsilon": _decode_epsilon,
        "decode_scale": _attention(True, _scaled),
        "decode_window": _attention(True, _windowed),
        "prefill_cache": _attention(False, _rounded_keys),
        "prefill_soft_cap": _attention(False, _uncapped),
        "update_next": _updated(_next_layer),
        "update_twice": _updated(_twice),
    }
)
SINGLES: tuple[tuple[str, str, Names, bool], ...] = (
    ("qwen3", "decode_scale:1.4", ("attention-scale",), False),
    ("llama", "decode_window:12", ("sliding-window",), False),
    ("gemma2", "prefill_soft_cap", ("attention-soft-cap",), False),
    ("qwen2", "decode_epsilon:0.2", ("norm-epsilon",), False),
    ("seed_oss", "prefill_cache", ("kv-cache",), False),
    ("qwen2", "update_twice:STALE", ("weight-update",), True),
    ("llama", "update_next:STALE", ("swapped-weights", "partial-sync", "layer-order"), True),
    ("arcee", "date_inside:3,2", ("prompt-ids",), False),
)
"""Family, fault, accepted names, and whether an older checkpoint is given."""

"""Edits of rotary positions: base, scaling, pairing of dimensions."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from contract import InapplicableError
from torch import Tensor, nn

_UNREADABLE = (KeyError, ValueError, TypeError, AttributeError, RuntimeError)
"""What a scaling raises if the configuration lacks what it needs."""


def rotary_modules(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """Each buffer of inverse frequencies: its module and its name."""
    return [
        (module, name)
        for module in model.modules()
        for name, _ in module.named_buffers(recurse=False)
        if name.endswith("inv_freq") and not name.startswith("original")
    ]


@contextmanager
def rope_base(model: nn.Module, value: Any) -> Iterator[None]:
    """Rotate with another base."""
    with _frequencies(model, lambda now: float(value) ** -(_steps(now) / now.numel())):
        yield


@contextmanager
def rope_scaling(model: nn.Module, value: Any) -> Iterator[None]:
    """Divide positions by a number."""
    with _frequencies(model, lambda now: now / float(value)):
        yield


@contextmanager
def rope_off(model: nn.Module, _: Any) -> Iterator[None]:
    """Ignore positions."""
    with _frequencies(model, torch.zeros_like):
        yield


@contextmanager
def rope_share(model: nn.Module, value: Any) -> Iterator[None]:
    """Rotate only the first share of the dimensions; a negative share turns them backwards."""
    share = float(value)

    def change(now: Tensor) -> Tensor:
        kept = _steps(now) < abs(share) * now.numel()
        return now * kept * (-1 if share < 0 else 1)

    with _frequencies(model, change):
        yield


@contextmanager
def rope_precision(model: nn.Module, value: Any) -> Iterator[None]:
    """Round the sines and cosines."""
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}[str(value)]

    def lowered(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        return tuple(part.to(dtype).to(part.dtype) for part in output)

    modules = {id(module): module for module, _ in rotary_modules(model)}.values()
    handles = [module.register_forward_hook(lowered) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def qk_norm_order(model: nn.Module, _: Any) -> Iterator[None]:
    """Normalize queries and keys after the rotation instead of before it."""
    layers: list[Any] = [
        m for m in model.modules() if hasattr(m, "q_norm") and hasattr(m, "k_norm")
    ]
    if not layers:
        raise InapplicableError("this model has no norms of queries and keys")
    source = sys.modules[type(layers[0]).__module__]
    rotate = source.apply_rotary_pos_emb
    current: list[tuple[Any, Any]] = []

    def turned(query: Tensor, key: Tensor, *rest: Any, **named: Any) -> Any:
        query, key = rotate(query, key, *rest, **named)
        of_query, of_key = current.pop()
        return of_query(query), of_key(key)

    with ExitStack() as stack:
        for layer in layers:
            norms = layer.q_norm.forward, layer.k_norm.forward
            hook = layer.register_forward_pre_hook(
                lambda _module, _inputs, norms=norms: current.append(norms)
            )
            stack.callback(hook.remove)
            stack.enter_context(mock.patch.object(layer.q_norm, "forward", lambda x: x))
            stack.enter_context(mock.patch.object(layer.k_norm, "forward", lambda x: x))
        stack.enter_context(mock.patch.object(source, "apply_rotary_pos_emb", turned))
        yield


@contextmanager
def rope_type(model: Any, value: Any) -> Iterator[None]:
    """Scale frequencies by a method of transformers, such as `yarn/4` or `llama3/8`."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind, _, factor = str(value).partition("/")
    config = copy.deepcopy(model.config.get_text_config())
    try:
        config.rope_parameters = _parameters(config, kind, float(factor or 1))
        frequencies, scale = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    except _UNREADABLE as error:
        raise InapplicableError(f"this model has no {kind} scaling: {error}") from error
    modules = {id(module): module for module, _ in rotary_modules(model)}.values()
    with ExitStack() as stack:
        for module in modules:
            if isinstance(getattr(module, "attention_scaling", None), int | float):
                stack.enter_context(mock.patch.object(module, "attention_scaling", scale))
        stack.enter_context(_frequencies(model, frequencies.to))
        yield


def _parameters(config: Any, kind: str, factor: float) -> dict[str, Any]:
    context = int(config.max_position_embeddings)
    return {
        **dict(config.rope_parameters),
        "rope_type": kind,
        "factor": factor,
        "original_max_position_embeddings": max(1, int(context / factor)),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }


@contextmanager
def _frequencies(model: nn.Module, change: Any) -> Iterator[None]:
    buffers = rotary_modules(model)
    if not buffers:
        raise InapplicableError("this model has no rotary positions")
    before = [getattr(module, name) for module, name in buffers]
    try:
        for (module, name), now in zip(buffers, before, strict=True):
            changed = change(now).to(now)
            if changed.shape != now.shape:
                raise InapplicableError("this scaling has another number of frequencies")
            setattr(module, name, changed)
        yield
    finally:
        for (module, name), now in zip(buffers, before, strict=True):
            setattr(module, name, now)


def _steps(now: Tensor) -> Tensor:
    return torch.arange(now.numel(), device=now.device, dtype=torch.float32)


@contextmanager
def rope_layout(model: nn.Module, value: Any) -> Iterator[None]:
    """Pair other dimensions: `interleaved` neighbors, or `halves` where the family interleaves."""
    sources = {type(module).__module__ for module in model.modules()}
    functions = [
        (sys.modules[source], name)
        for source in sources
        for name in vars(sys.modules[source])
        if name.startswith("apply_rotary_pos_emb")
    ]
    if not functions:
        raise InapplicableError("this model has no rotary positions")
    with ExitStack() as stack:
        for module, name in functions:
            changed = _paired(getattr(module, name), str(value))
            stack.enter_context(mock.patch.object(module, name, changed))
        yield


def _paired(rotate: Any, layout: str) -> Any:
    def rotated(query: Tensor, key: Tensor, cos: Tensor, *rest: Any, **named: Any) -> Any:
        half = query.shape[-1] // 2
        order = torch.arange(2 * half, device=query.device).view(half, 2).T.flatten()
        if layout == "halves":
            order = order.argsort()
        back = order.argsort()
        turned = rotate(query[..., order], key[..., order], cos, *rest, **named)
        return tuple(each[..., back] for each in turned)

    return rotated

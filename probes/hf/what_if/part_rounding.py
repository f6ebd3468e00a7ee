"""A coarser number format in one kind of part only.

The kinds are the output head, the embeddings, attention, MLPs, and the compressed keys and values
of latent attention.

An engine that quantizes a model leaves some kinds of parts as they are, and a conversion that
forgets such a rule, or applies it to the wrong part, changes one kind alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from contract import InapplicableError
from torch import Tensor, nn

from hf.hooks import until_end
from hf.loading import ROUTERS
from hf.what_if.modules import layers
from hf.what_if.numerics import other_values, owned_weights
from hf.what_if.rounding import rounded

HEAD, EMBEDDINGS = "output head", "embeddings"
_KINDS = {"attention": r"attn|attention|mixer", "MLPs": r"mlp|feed_forward|experts|moe"}
_HALVES = ("bfloat16", "float16")
_STORED = (*_HALVES, "fp8", "fp8/row", "fp8/tensor", "fp8_e5m2", "int8", "int8/tensor", "int4",
           "int4/group32")  # fmt: skip
"""Formats of weights alone."""
_MULTIPLIED = (*_HALVES, "fp8/row", "fp8/tensor", "fp8_e5m2/tensor", "int8")
"""Formats in which weights and inputs are multiplied."""
_CACHED = ("fp8", "fp8/row", "fp8/tensor", "fp8_e5m2", "int8", *_HALVES)
_LATENT = re.compile(r"(^|\.)kv_b_proj$")
"""Modules that read the compressed keys and values of latent attention."""
_ROUTER = re.compile(ROUTERS)


def stored(model: Any) -> dict[str, tuple[str, ...]]:
    """The formats of weights to try for each kind of part that the model has."""
    return dict.fromkeys((HEAD, EMBEDDINGS, *_kinds(model)), _STORED)


def multiplied(model: Any) -> dict[str, tuple[str, ...]]:
    """The same for weights and inputs."""
    return dict.fromkeys((HEAD, *_kinds(model)), _MULTIPLIED)


def cached(model: Any) -> tuple[str, ...]:
    """The formats of compressed keys and values; none without latent attention."""
    return _CACHED if _latent(model) else ()


@contextmanager
def part_rounding(model: Any, value: Any) -> Iterator[None]:
    """The edit `[part, format]` of the weights of a kind of part."""
    part, scheme = (str(each) for each in value)
    changed = {
        path: rounded(weight.data, scheme)
        for path, module, _, weight in owned_weights(model)
        if weight.ndim > 1 and _is_of(model, part, path, module)
    }
    if not changed:
        raise InapplicableError(f"this model has no {part}")
    with other_values(model, changed):
        yield


@contextmanager
def part_products(model: Any, value: Any) -> Iterator[None]:
    """The same of weights and inputs, which are scaled for each token."""
    part, scheme = (str(each) for each in value)
    inner = scheme if scheme in _HALVES else f"{scheme.partition('/')[0]}/row"
    with part_rounding(model, value), _rounded_inputs(_linear(model, part), inner):
        yield


@contextmanager
def latent_cache(model: Any, value: Any) -> Iterator[None]:
    """The edit of compressed keys and values, in a format."""
    with _rounded_inputs(_latent(model), str(value)):
        yield


def _is_of(model: Any, part: str, path: str, module: nn.Module) -> bool:
    if part in (HEAD, EMBEDDINGS):
        is_head = part == HEAD
        return module is (model.get_output_embeddings() if is_head else _embeddings(model))
    inside = _within_layers(model, module)
    return bool(inside and re.search(_KINDS[part], path) and not _ROUTER.search(_parent(path)))


def _embeddings(model: Any) -> nn.Module:
    found: nn.Module = model.get_input_embeddings()
    return found


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _within_layers(model: Any, module: nn.Module) -> bool:
    return any(module is each for layer in layers(model) for each in layer.modules())


def _kinds(model: Any) -> list[str]:
    return [kind for kind in _KINDS if _linear(model, kind)]


def _linear(model: Any, part: str) -> list[nn.Module]:
    """The linear layers of a kind of part."""
    return [
        module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and _is_of(model, part, f"{name}.weight", module)
    ]


def _latent(model: Any) -> list[nn.Module]:
    return [module for name, module in model.named_modules() if _LATENT.search(name)]


@contextmanager
def _rounded_inputs(modules: list[nn.Module], scheme: str) -> Iterator[None]:
    if not modules:
        raise InapplicableError("no linear layer of this part reads an input")

    def hook(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Any, ...]:
        return (rounded(inputs[0], scheme), *inputs[1:])

    with until_end([module.register_forward_pre_hook(hook) for module in modules]):
        yield

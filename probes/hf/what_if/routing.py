"""Edits of routers: their precision, and the weights of the chosen experts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from contract import InapplicableError
from torch import Tensor, nn

from hf.routers import Routers
from hf.what_if.modules import replaced

_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@contextmanager
def router_precision(model: Any, value: Any) -> Iterator[None]:
    """Run routers in another precision; `bfloat16/inputs` rounds only weights and inputs."""
    routers = _routers(model)
    form, _, part = str(value).partition("/")
    dtype = _DTYPES[form]

    def lower(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Any, ...]:
        first = inputs[0].to(dtype)
        return (first.to(inputs[0].dtype) if part else first, *inputs[1:])

    def lift(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        return _mapped(output, lambda part: part.float() if part.is_floating_point() else part)

    weights = [weight for router in routers for weight in router.parameters()]
    handles = [router.register_forward_pre_hook(lower) for router in routers]
    if not part:
        handles += [router.register_forward_hook(lift) for router in routers]
    try:
        with replaced(weights, lambda w: w.to(dtype).to(w.dtype) if part else w.to(dtype)):
            yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def router_weights(model: Any, value: Any) -> Iterator[None]:
    """Weights of the chosen experts: `raw` probabilities, `sum` to 1, or `equal`."""

    def change(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        if not isinstance(output, tuple) or len(output) != _PARTS:
            raise InapplicableError("these routers return no weights")
        logits, scores, ids = output
        chosen = logits.float().softmax(dim=-1).gather(-1, ids)
        if value == "sum":
            chosen = chosen / chosen.sum(dim=-1, keepdim=True)
        elif value == "equal":
            chosen = torch.full_like(chosen, 1 / chosen.shape[-1])
        return logits, chosen.to(scores.dtype), ids

    handles = [router.register_forward_hook(change) for router in _routers(model)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


_PARTS = 3
"""Logits, weights and ids, as most families' routers return them."""


def _routers(model: Any) -> list[nn.Module]:
    routers = Routers(model).modules
    if not routers:
        raise InapplicableError("this model has no routers")
    return routers


def _mapped(output: Any, change: Any) -> Any:
    if isinstance(output, tuple):
        return tuple(change(part) if isinstance(part, Tensor) else part for part in output)
    return change(output)

"""Edits of the experts that routers choose: of other tokens, or with another bias or input.

Shape suffixes: B rows, L positions, N tokens of a pass, E experts, K experts per token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from contract import InapplicableError
from torch import Tensor, nn

from hf.hooks import until_end
from hf.routers import Routers
from hf.what_if.modules import layers, norms
from hf.what_if.routing import SCORES, name_of_scores, vectors_of

_PARTS = 3
"""Logits, weights and ids, as most families' routers return them."""
_SAME = 1e-4
"""Relative difference up to which the sums of weights are equal."""


@contextmanager
def experts_shifted(model: Any, value: Any) -> Iterator[None]:
    """Tokens get the experts of the token before, `token:1`, or of the layer before, `layer:1`.

    The weights are those that the token's own router gives to these experts, as in a replay.
    """
    axis, _, far = str(value).partition(":")
    latest = _Pass()
    hooks = [model.register_forward_pre_hook(latest.note, with_kwargs=True)]
    earlier: list[Tensor] = []
    for layer, router in enumerate(_routers_of(model)):
        if axis == "token":
            change = partial(_of_token, latest, int(far))
        elif axis == "layer" and int(far) > 0:
            change = partial(_of_layer, earlier, layer, int(far))
        else:
            raise InapplicableError(f"experts cannot be shifted by {value!r}")
        hooks.append(router.register_forward_hook(change))
    with until_end(hooks):
        yield


class _Pass:
    """The shape of the ids of the latest pass: most routers see its tokens in one row."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = ()

    def note(self, _model: nn.Module, arguments: Any, named: Any) -> None:
        """A hook that runs before the model."""
        ids = named.get("input_ids", arguments[0] if arguments else None)
        self.shape = tuple(ids.shape) if isinstance(ids, Tensor) else ()


def _of_token(shape: _Pass, far: int, _router: nn.Module, _inputs: Any, output: Any) -> Any:
    logits_NE, weights_NK, ids_NK = _answer(output)
    if not shape.shape or ids_NK.shape[0] != shape.shape[0] * shape.shape[1]:
        raise InapplicableError("these routers do not see all tokens of a pass in order")
    moved_NK = ids_NK.view(*shape.shape, -1).roll(far, 1).flatten(0, 1)
    return logits_NE, weights_at(logits_NE, weights_NK, ids_NK, moved_NK), moved_NK


def _of_layer(
    earlier: list[Tensor], layer: int, far: int, _router: nn.Module, _inputs: Any, output: Any
) -> Any:
    logits_NE, weights_NK, ids_NK = _answer(output)
    if layer == 0:
        earlier.clear()
    earlier.append(ids_NK)
    if layer < far:
        return output
    moved_NK = earlier[layer - far]
    return logits_NE, weights_at(logits_NE, weights_NK, ids_NK, moved_NK), moved_NK


def weights_at(logits_NE: Tensor, weights_NK: Tensor, ids_NK: Tensor, others_NK: Tensor) -> Tensor:
    """The weights that a router would give to other experts than the chosen ones, shape (N, K).

    Raises:
        InapplicableError: if its weights are of an unknown form.
    """
    scores = SCORES[name_of_scores(logits_NE.float(), weights_NK.float(), ids_NK)]
    own_NK, new_NK = (scores(logits_NE.float()).gather(-1, ids) for ids in (ids_NK, others_NK))
    totals_N1 = weights_NK.float().sum(dim=-1, keepdim=True)
    if torch.allclose(totals_N1, totals_N1.mean(), rtol=_SAME):  # weights are normalized
        return (new_NK / new_NK.sum(dim=-1, keepdim=True) * totals_N1).to(weights_NK)
    return (new_NK * totals_N1 / own_NK.sum(dim=-1, keepdim=True)).to(weights_NK)


@contextmanager
def router_bias(model: Any, value: Any) -> Iterator[None]:
    """Numbers added to the bias of each router's choice, a list of E numbers for each router.

    Raises:
        InapplicableError: if a router has no bias, or another number of experts.
    """
    routers = _routers_of(model)
    biases = [next((b for name, b in vectors_of(r) if "bias" in name), None) for r in routers]
    if len(value) != len(routers):
        raise InapplicableError(f"this model has {len(routers)} routers")
    kept: list[tuple[Tensor, Tensor]] = []
    for bias, added in zip(biases, value, strict=True):
        if bias is None or bias.shape != (len(added),):
            raise InapplicableError("these routers have no such bias")
        kept.append((bias, bias.data))
    try:
        for (bias, data), added in zip(kept, value, strict=True):
            bias.data = (data.double() + torch.tensor(added).to(data.device)).to(data)
        yield
    finally:
        for bias, data in kept:
            bias.data = data


_NORMED, _BEFORE = "normed by ", "before "


def router_inputs(model: Any) -> list[str]:
    """Other inputs of routers: normed by a norm of their layer, or as that norm reads it."""
    names: dict[str, None] = {}
    for layer, _ in _layers_with_routers(model):
        names |= dict.fromkeys(_norms_of(layer))
    return [f"{how}{name}" for how in (_NORMED, _BEFORE) for name in names]


@contextmanager
def router_input(model: Any, value: Any) -> Iterator[None]:
    """Routers read another input: `normed by NAME`, or `before NAME`, what this norm reads."""
    form = str(value)
    name = form.removeprefix(_NORMED).removeprefix(_BEFORE)
    handles: list[Any] = []
    for layer, routers in _layers_with_routers(model):
        norm = _norms_of(layer).get(name)
        if norm is None:
            continue
        read: list[Tensor] = []
        if form.startswith(_BEFORE):
            handles.append(norm.register_forward_pre_hook(partial(_kept, read)))
        for router in routers:
            hook = _normed_by(norm) if form.startswith(_NORMED) else partial(_taken, read)
            handles.append(router.register_forward_pre_hook(hook))
    if not handles:
        raise InapplicableError(f"no layer with routers has a norm {name}")
    with until_end(handles):
        yield


def _kept(read: list[Tensor], _norm: nn.Module, inputs: Any) -> None:
    read[:] = [inputs[0]]


def _taken(read: list[Tensor], _router: nn.Module, inputs: Any) -> Any:
    if not read or read[0].numel() != inputs[0].numel():
        raise InapplicableError("the norm does not run before the routers")
    return (read.pop().reshape(inputs[0].shape), *inputs[1:])


def _normed_by(norm: nn.Module) -> Any:
    forward = norm.forward  # not the module itself: other edits hook that
    return lambda _router, inputs: (forward(inputs[0]), *inputs[1:])


def _layers_with_routers(model: Any) -> list[tuple[nn.Module, list[nn.Module]]]:
    """Layers, each with its routers."""
    routers = {id(each): each for each in Routers(model).modules}
    found = []
    for layer in layers(model):
        own = [routers[id(module)] for module in layer.modules() if id(module) in routers]
        if own:
            found.append((layer, own))
    return found


def _norms_of(layer: nn.Module) -> dict[str, nn.Module]:
    """The norms of a layer that are in none of its blocks."""
    return {name: module for name, module in norms(layer) if "." not in name}


def _routers_of(model: Any) -> list[nn.Module]:
    routers = Routers(model).modules
    if not routers:
        raise InapplicableError("this model has no routers")
    return routers


def _answer(output: Any) -> tuple[Tensor, Tensor, Tensor]:
    if not isinstance(output, tuple) or len(output) != _PARTS or output[2].is_floating_point():
        raise InapplicableError("these routers return no weights")
    return output

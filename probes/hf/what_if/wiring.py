"""Edits of how the blocks of a layer are connected: places of norms, sources of residuals.

One pass over three tokens shows the connections: which norm reads what a block returns, and which
one a block reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from contract import InapplicableError
from torch import Tensor, nn

from hf.hooks import until_end
from hf.localisation.places import read_input, tensor_of, watched
from hf.what_if.modules import layers, norms

ALL = "*"
BEFORE, AFTER, BOTH = "before", "after", "both"
_NORMED, _MISSING, _TWICE, _PARALLEL = "normed", "missing", "twice", "parallel"


@dataclass(frozen=True)
class _Link:
    """A norm of a layer and the block that it belongs to."""

    norm: str
    block: str
    place: str
    """`before` or `after` the block."""


_KNOWN: WeakKeyDictionary[nn.Module, tuple[_Link, ...]] = WeakKeyDictionary()


def norm_places(model: nn.Module) -> list[list[str]]:
    """For each norm of a block, and for all of them, the places that it may have by mistake."""
    found = _links(model)
    values = [
        [link.norm, place] for link in found for place in ({BEFORE, AFTER} - {link.place} | {BOTH})
    ]
    several = len({link.norm for link in found}) > 1
    return [*([[ALL, BEFORE], [ALL, AFTER]] if several else []), *sorted(values)]


def residuals(model: nn.Module) -> list[list[str]]:
    """For each block with a norm before it, and for all, the residuals that it may have."""
    named = dict.fromkeys(link.block for link in _links(model) if link.place == BEFORE)
    chosen = [*([ALL] if len(named) > 1 else []), *named]
    values = [[block, form] for block in chosen for form in (_NORMED, _MISSING, _TWICE)]
    return [*values, *([[list(named)[1], _PARALLEL]] if len(named) > 1 else [])]


@contextmanager
def norm_place(model: nn.Module, value: Any) -> Iterator[None]:
    """A norm before or after its block, or at both places, `[norm, place]`; `*` for all norms."""
    name, place = value
    found = [link for link in _links(model) if name in (ALL, link.norm) and link.place != place]
    if not found:
        raise InapplicableError(f"this model has no norm {name} at another place")
    with ExitStack() as stack:
        wanted = (BEFORE, AFTER) if place == BOTH else (place,)
        for _, norm, block, link in _modules_of(model, found):
            stack.enter_context(_at(norm, block, link.place, wanted))
        yield


@contextmanager
def _at(norm: Any, block: nn.Module, now: str, wanted: tuple[str, ...]) -> Iterator[None]:
    """Apply a norm at the wanted places of a block, and no longer where it is."""

    def first(_module: Any, arguments: Any, named: Any) -> Any:
        read = read_input(arguments, named)
        if read is None:
            raise InapplicableError("a block reads no tensor")
        changed = norm.forward(read)
        given = tuple(changed if each is read else each for each in arguments)
        return given, {n: changed if each is read else each for n, each in named.items()}

    def last(_module: Any, _arguments: Any, output: Any) -> Any:
        return _with_first(output, norm.forward(_first(output)))

    handles = []
    if now not in wanted:
        handles.append(norm.register_forward_hook(lambda _m, inputs, _out: inputs[0]))
    if BEFORE in wanted and now != BEFORE:
        handles.append(block.register_forward_pre_hook(first, with_kwargs=True))
    if AFTER in wanted and now != AFTER:
        handles.append(block.register_forward_hook(last))
    with until_end(handles):
        yield


@contextmanager
def residual_from(model: nn.Module, value: Any) -> Iterator[None]:
    """Another residual around a block, `[block, form]`; `*` for all blocks.

    `normed`: what the block reads, after its norm. `missing`: none. `twice`: added twice.
    `parallel`: the block's norm reads what the layer reads, not what the block before returns.
    """
    name, form = value
    found = [link for link in _links(model) if link.place == BEFORE and name in (ALL, link.block)]
    if not found:
        raise InapplicableError(f"this model has no block {name} after a norm")
    with ExitStack() as stack:
        for layer, norm, block, _ in _modules_of(model, found):
            if form == _PARALLEL:
                stack.enter_context(_parallel(layer, norm))
            else:
                stack.enter_context(_with_residual(norm, block, str(form)))
        yield


@contextmanager
def _with_residual(norm: nn.Module, block: nn.Module, form: str) -> Iterator[None]:
    streams: dict[str, Tensor] = {}

    def noted(_module: Any, inputs: Any, output: Tensor) -> None:
        streams.update(plain=inputs[0], normed=output)

    def added(_module: Any, _inputs: Any, output: Any) -> Any:
        plain, normed = streams["plain"], streams["normed"]
        more = {_NORMED: normed - plain, _MISSING: -plain, _TWICE: plain}[form]
        made = _first(output)
        return _with_first(output, made + more.view(made.shape))

    handles = [norm.register_forward_hook(noted), block.register_forward_hook(added)]
    with until_end(handles):
        yield


@contextmanager
def _parallel(layer: nn.Module, norm: nn.Module) -> Iterator[None]:
    read: list[Tensor] = []

    def noted(_module: Any, arguments: Any, named: Any) -> None:
        given = read_input(arguments, named)
        read[:] = [] if given is None else [given]

    handles = [
        layer.register_forward_pre_hook(noted, with_kwargs=True),
        norm.register_forward_pre_hook(lambda _m, inputs: (*read, *inputs[1:])),
    ]
    with until_end(handles):
        yield


def _modules_of(
    model: nn.Module, found: Sequence[_Link]
) -> Iterator[tuple[nn.Module, nn.Module, nn.Module, _Link]]:
    """Each layer with the norm and the block of a link that it has."""
    for layer in layers(model):
        for link in found:
            norm, block = _child(layer, link.norm), _child(layer, link.block)
            if norm is not None and block is not None:
                yield layer, norm, block, link


def _links(model: nn.Module) -> tuple[_Link, ...]:
    """The norms next to blocks, of all layers, in the order of computation."""
    if model not in _KNOWN:
        _KNOWN[model] = tuple(dict.fromkeys(_observed(model)))
    return _KNOWN[model]


def _observed(model: Any) -> Iterator[_Link]:
    scaling = {id(module) for _, module in norms(model)}
    wanted = {
        f"{number}.{name}": child
        for number, layer in enumerate(layers(model))
        for name, child in layer.named_children()
        if any(True for _ in child.parameters())
    }
    calls: list[tuple[str, int, int]] = []
    kept: list[Any] = []  # ids of freed tensors are used again

    def seen(name: str) -> Any:
        def hook(_module: Any, arguments: Any, named: Any, output: Any) -> None:
            given, made = read_input(arguments, named), tensor_of(output)
            kept.extend((given, made))
            calls.append((name, id(given), id(made)))

        return hook

    device = model.get_input_embeddings().weight.device
    with watched(wanted, seen), torch.no_grad():
        model(input_ids=torch.tensor([[1, 2, 3]], device=device), use_cache=False)
    for at, (name, given, made) in enumerate(calls):
        if id(wanted[name]) not in scaling:
            continue
        layer, _, norm = name.partition(".")
        near = [call for call in calls if call[0].partition(".")[0] == layer]
        blocks = [call for call in near if id(wanted[call[0]]) not in scaling]
        behind = [call for call in blocks if call[2] == given and calls.index(call) < at]
        ahead = [call for call in blocks if call[1] == made and calls.index(call) > at]
        for found, place in ((behind[-1:], AFTER), (ahead[:1], BEFORE)):
            for call in found:
                yield _Link(norm, call[0].partition(".")[2], place)


def _child(layer: nn.Module, name: str) -> nn.Module | None:
    return dict(layer.named_children()).get(name)


def _first(output: Any) -> Tensor:
    made = tensor_of(output)
    if made is None:
        raise InapplicableError("a block returns no tensor")
    return made


def _with_first(output: Any, new: Tensor) -> Any:
    old = _first(output)
    if output is old:
        return new
    if isinstance(output, tuple):
        return tuple(new if each is old else each for each in output)
    raise InapplicableError("a block's output has another form")

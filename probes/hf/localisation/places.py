"""The places of a model: embedding, each block of each layer with its norms, norms, output head.

A place is a set of modules. The blocks are the children of a layer, whatever their names; a norm
belongs to the block whose output it reads, otherwise to the block that runs next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn

from hf.hooks import until_end
from hf.what_if.modules import layers, norms

EMBEDDING, HEAD, NORMS = "embedding", "head", "norms"


@dataclass
class Place:
    """A block of a layer, the embedding, or the output head."""

    name: str
    """The name, such as `3.self_attn`, `embedding`, `head`."""
    block: nn.Module
    inner: dict[str, nn.Module] = field(default_factory=dict)
    """Modules whose output a fault of the place may change, by name; the block itself included."""
    norms: dict[str, nn.Module] = field(default_factory=dict)
    """The norms among the inner modules."""

    @property
    def layer(self) -> int | None:
        """The layer's number; None outside of the layers."""
        number, dot, _ = self.name.partition(".")
        return int(number) if dot else None

    @property
    def kind(self) -> str:
        """The place's name without the layer."""
        return self.name.partition(".")[2] or self.name


def tensor_of(value: Any) -> Tensor | None:
    """The first floating-point tensor of a module's input or output."""
    if isinstance(value, Tensor):
        return value if value.is_floating_point() else None
    parts = value.values() if isinstance(value, dict) else value
    if isinstance(value, list | tuple | dict):
        return next((found for part in parts if (found := tensor_of(part)) is not None), None)
    return None


def read_input(arguments: Any, named: Any) -> Tensor | None:
    """The tensor that a module reads."""
    given = tensor_of(list(arguments))
    return tensor_of(named) if given is None else given


def places_of(model: Any, run: Callable[[], Any]) -> list[Place]:
    """The places of a model, in the order of computation.

    Args:
        model: a causal language model.
        run: one forward pass, which shows in which order the modules run.
    """
    stack = layers(model)
    norm_ids = {id(module) for _, module in norms(model)}
    children = {
        f"{number}.{name}": child
        for number, layer in enumerate(stack)
        for name, child in layer.named_children()
        if any(True for _ in child.parameters())
    }
    between = {name: child for name, child in children.items() if id(child) in norm_ids}
    places = {
        name: Place(name, child, _inner(name, child))
        for name, child in children.items()
        if name not in between
    }
    for norm, owner in _owners(between, places, run).items():
        places[owner].inner[norm] = places[owner].norms[norm] = between[norm]
    for place in places.values():
        place.norms |= {
            name: module for name, module in place.inner.items() if id(module) in norm_ids
        }
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    found = [Place(EMBEDDING, embedding, {EMBEDDING: embedding}), *places.values()]
    if head is not None:
        in_layers = {id(module) for module in _within(stack)}
        last = {name: norm for name, norm in norms(model) if id(norm) not in in_layers}
        found.append(Place(HEAD, head, {HEAD: head, **last}, last))
    return found


def _inner(name: str, block: nn.Module) -> dict[str, nn.Module]:
    return {f"{name}.{path}" if path else name: module for path, module in block.named_modules()}


def _within(stack: nn.ModuleList) -> Iterator[nn.Module]:
    for layer in stack:
        yield from layer.modules()


class _Call(NamedTuple):
    """A module as it ran: the identities of the tensors that it read and returned, 0 if none."""

    name: str
    read: int
    returned: int


def _owners(
    between: dict[str, nn.Module], blocks: dict[str, Place], run: Callable[[], Any]
) -> dict[str, str]:
    """The block of each norm between blocks, by the norm's name.

    It is the block whose output the norm reads, otherwise the next one of the layer that runs.
    """
    modules = {**between, **{name: place.block for name, place in blocks.items()}}
    calls = _calls(modules, run)
    owners: dict[str, str] = {}
    for at, call in enumerate(calls):
        if call.name not in between or call.name in owners:
            continue
        layer = call.name.partition(".")[0]
        sources = [
            earlier.name
            for earlier in calls[:at]
            if earlier.name in blocks and earlier.returned == call.read
        ]
        followers = [
            later.name
            for later in calls[at:]
            if later.name in blocks and later.name.partition(".")[0] == layer
        ]
        if owner := sources[-1:] or followers[:1]:
            owners[call.name] = owner[0]
    return owners


def _calls(modules: dict[str, nn.Module], run: Callable[[], Any]) -> list[_Call]:
    """The calls of some modules in one forward pass, in their order."""
    calls: list[_Call] = []
    kept: list[Any] = []  # Python gives the id of a freed tensor to a later one

    def recorder(name: str) -> Callable[..., None]:
        def hook(_module: Any, arguments: Any, named: Any, output: Any) -> None:
            tensors = read_input(arguments, named), tensor_of(output)
            calls.append(_Call(name, *(0 if each is None else id(each) for each in tensors)))
            kept.extend(tensors)

        return hook

    with watched(modules, recorder):
        run()
    return calls


@contextmanager
def watched(
    modules: dict[str, nn.Module], hook: Callable[[str], Callable[..., Any]]
) -> Iterator[None]:
    """Call a hook with inputs and output of each module inside the block."""
    handles = [
        module.register_forward_hook(hook(name), with_kwargs=True)
        for name, module in modules.items()
    ]
    with until_end(handles):
        yield

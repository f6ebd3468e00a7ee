"""The places of a model: embedding, each block of each layer with its norms, norms, output head.

A place is a set of modules. The blocks are the children of a layer, whatever their names; a norm
belongs to the block whose output it reads, otherwise to the block that runs next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from hf.hooks import until_end
from hf.what_if.modules import layers, norms

EMBEDDING, HEAD, NORMS = "embedding", "head", "norms"


@dataclass
class Place:
    """A block of a layer, the embedding, or the output head."""

    name: str
    """Such as `3.self_attn`, `embedding`, `head`."""
    block: nn.Module
    inner: dict[str, nn.Module] = field(default_factory=dict)
    """Modules whose output a fault of the place may change, by name; the block itself included."""
    norms: dict[str, nn.Module] = field(default_factory=dict)
    """Those of them that normalize."""

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
    scaling = {id(module) for _, module in norms(model)}
    blocks = {
        f"{number}.{name}": child
        for number, layer in enumerate(stack)
        for name, child in layer.named_children()
        if any(True for _ in child.parameters())
    }
    found = {
        name: Place(name, child, _inner(name, child))
        for name, child in blocks.items()
        if id(child) not in scaling
    }
    single = {name: child for name, child in blocks.items() if id(child) in scaling}
    for norm, owner in _owners(single, found, run).items():
        found[owner].inner[norm] = found[owner].norms[norm] = single[norm]
    for place in found.values():
        place.norms |= {n: m for n, m in place.inner.items() if id(m) in scaling}
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    ends = [Place(EMBEDDING, embedding, {EMBEDDING: embedding})]
    last = {n: m for n, m in norms(model) if not any(m is e for e in _within(stack))}
    if head is not None:
        place = Place(HEAD, head, {HEAD: head, **last}, last)
        return [*ends, *found.values(), place]
    return [*ends, *found.values()]


def _inner(name: str, block: nn.Module) -> dict[str, nn.Module]:
    return {f"{name}.{n}" if n else name: m for n, m in block.named_modules()}


def _within(stack: nn.ModuleList) -> Iterator[nn.Module]:
    for layer in stack:
        yield from layer.modules()


def _owners(
    single: dict[str, nn.Module], blocks: dict[str, Place], run: Callable[[], Any]
) -> dict[str, str]:
    """The block of each norm between blocks, by the norm's name."""
    order: list[tuple[str, int, int]] = []

    def seen(name: str) -> Callable[..., None]:
        def hook(_module: Any, arguments: Any, named: Any, output: Any) -> None:
            given, made = read_input(arguments, named), tensor_of(output)
            order.append((name, 0 if given is None else id(given), 0 if made is None else id(made)))
            kept.extend((given, made))

        return hook

    kept: list[Any] = []  # ids of freed tensors are used again
    wanted = {**single, **{name: place.block for name, place in blocks.items()}}
    with watched(wanted, seen):
        run()
    owners: dict[str, str] = {}
    for at, (name, given, _) in enumerate(order):
        if name not in single or name in owners:
            continue
        layer = name.partition(".")[0]
        layer = name.partition(".")[0]
        before = [n for n, _, made in order[:at] if n in blocks and made == given]
        after = [n for n, _, _ in order[at:] if n in blocks and n.partition(".")[0] == layer]
        chosen = before[-1:] or after[:1]
        if chosen:
            owners[name] = chosen[0]
    return owners


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

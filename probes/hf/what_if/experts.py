"""Edits of the experts of a mixture: some are lost, or have the weights of others.

They imitate faults of expert parallelism: the sum lacks the experts of a rank, experts that only
return their input are not known to the kernel, and a rebalance moves weights but not the routes.

Shape suffixes: N tokens of a pass, K experts per token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any

import torch
from contract import InapplicableError
from torch import Tensor, nn

from hf.hooks import until_end
from hf.routers import Routers
from hf.what_if.modules import layers

EVERYWHERE = "*"
IDENTITY = "identity"
_SLICES = (2, 4, 8)
_MOST_PAIRS = 128
"""Exchanges of two experts that are tried in a model: all of few."""
_FEW = 11
"""Experts up to which two may be exchanged in all layers."""
_ORDERS = ("next", "previous", "halves", "reversed")
_IN_TURN, _IN_BLOCKS = "in turn among ", "in blocks among "
_OF_FIRST, _OF_LAST = "of the first rank of ", "of the last rank of "
_RANKS = (2, 4, 8)
"""Ranks that hold experts in turn and are read as if they held consecutive ones, or reversely; or
that all hold those of one rank."""


def lost_parts(model: Any) -> list[list[str]]:
    """Experts that may be lost, as `[place, part]`: `1/4` is the first quarter."""
    blocks = expert_blocks(model)
    if not blocks:
        return []
    parts = [IDENTITY] if any(_identities(block) for block in blocks.values()) else []
    counts = [_count(block) for block in blocks.values()]
    for size in dict.fromkeys((*_SLICES, _count_of(blocks))):
        if 1 < size <= _SLICES[-1] and all(count % size == 0 for count in counts):
            parts += [f"{part}/{size}" for part in range(1, size + 1)]
    return [[EVERYWHERE, part] for part in parts]


def exchanges(model: Any) -> dict[str, list[str]]:
    """Orders in which experts may have the weights of others, by place: `0<>2` exchanges two."""
    blocks = expert_blocks(model)
    pairs = {
        place: [f"{one}<>{other}" for one, other in combinations(range(_count(block)), 2)]
        for place, block in blocks.items()
    }
    if not pairs:
        return {}
    is_few = sum(map(len, pairs.values())) <= _MOST_PAIRS
    shared = min(pairs.values(), key=len) if _count_of(blocks) <= _FEW else []
    count = _count_of(blocks)
    ranks = [ranks for ranks in _RANKS if count % ranks == 0 and count > ranks]
    hows = (_IN_TURN, _IN_BLOCKS, _OF_FIRST, _OF_LAST)
    by_rank = [f"{how}{number}" for how in hows for number in ranks]
    return {EVERYWHERE: [*_ORDERS, *by_rank, *shared], **(pairs if is_few else {})}


@contextmanager
def lost_experts(model: Any, value: Any) -> Iterator[None]:
    """The sum of experts lacks some, `["*", "1/4"]`; `identity`: those without weights."""
    place, part = map(str, value)

    def without(block: nn.Module, ids_NK: Tensor, weights_NK: Tensor) -> tuple[Tensor, Tensor]:
        return ids_NK, weights_NK.masked_fill(_members(block, ids_NK, part), 0.0)

    with _rerouted(model, place, without):
        yield


def sums(model: Any) -> list[list[str]]:
    """What a token may keep of its experts, if their outputs overwrite each other."""
    return [[EVERYWHERE, which] for which in _KEPT] if expert_blocks(model) else []


def replicas(model: Any) -> list[str]:
    """Experts that may count twice, `3/6` the third of six; of many experts, those of one rank."""
    blocks = expert_blocks(model)
    if not blocks:
        return []
    count = _count_of(blocks)
    sizes = [count] if count <= _MOST_SINGLE else [s for s in (*_SLICES, 16) if count % s == 0]
    return [f"{part}/{size}" for size in sizes if size > 1 for part in range(1, size + 1)]


_MOST_SINGLE = 16
"""Experts up to which each is tried by itself."""


@contextmanager
def expert_scale(model: Any, value: Any) -> Iterator[None]:
    """A factor on the outputs of some experts, `["3/6", 2.0]`, as where two ranks add them."""
    part, factor = str(value[0]), float(value[1])

    def scaled(block: nn.Module, ids_NK: Tensor, weights_NK: Tensor) -> tuple[Tensor, Tensor]:
        if _count(block) % int(part.partition("/")[2]):
            raise InapplicableError(f"{_count(block)} experts have no part {part}")
        chosen_NK = _members(block, ids_NK, part)
        return ids_NK, torch.where(chosen_NK, weights_NK * factor, weights_NK)

    with _rerouted(model, EVERYWHERE, scaled):
        yield


_KEPT = ("last", "first", "likeliest", "least likely")


@contextmanager
def expert_sum(model: Any, value: Any) -> Iterator[None]:
    """A token keeps one expert's output, `["*", "last"]`: the one with the largest number."""
    place, which = map(str, value)

    def kept(_block: nn.Module, ids_NK: Tensor, weights_NK: Tensor) -> tuple[Tensor, Tensor]:
        order_NK = ids_NK if which in ("last", "first") else weights_NK
        ends = order_NK.amax if which in ("last", "likeliest") else order_NK.amin
        return ids_NK, weights_NK * (order_NK == ends(-1, keepdim=True))

    with _rerouted(model, place, kept):
        yield


@contextmanager
def experts_from(model: Any, value: Any) -> Iterator[None]:
    """Experts have the weights of others, `["1", "0<>2"]`, `["*", "next"]` or `["*", "halves"]`."""
    place, order = map(str, value)

    def moved(block: nn.Module, ids_NK: Tensor, weights_NK: Tensor) -> tuple[Tensor, Tensor]:
        sources = _sources(_count(block), order).to(ids_NK.device)
        known_NK = ids_NK < len(sources)
        taken_NK = sources[ids_NK.clamp(max=len(sources) - 1)].to(ids_NK.dtype)
        return torch.where(known_NK, taken_NK, ids_NK), weights_NK

    with _rerouted(model, place, moved):
        yield


def expert_blocks(model: Any) -> dict[str, nn.Module]:
    """The experts of each layer that has a router, by the layer's number."""
    found = {id(block): block for block in Routers(model).expert_modules}
    if not found:
        return {}
    return {
        str(number): found[id(module)]
        for number, layer in enumerate(layers(model))
        for module in layer.modules()
        if id(module) in found
    }


def _count(block: Any) -> int:
    """The number of experts with weights."""
    stacked = [weight for weight in block.parameters() if weight.ndim == _STACKED]
    return min((len(weight) for weight in stacked), default=0)


def _count_of(blocks: dict[str, nn.Module]) -> int:
    """The smallest number of experts of a layer."""
    return min(map(_count, blocks.values()))


_STACKED = 3
"""Dimensions of the weights of all experts: expert, rows, columns."""


def _identities(block: nn.Module) -> bool:
    """Whether some experts return their input: a module without weights stands for them."""
    return any(isinstance(child, nn.Identity) for child in block.children())


def _members(block: nn.Module, ids_NK: Tensor, part: str) -> Tensor:
    count = _count(block)
    if part == IDENTITY:
        return ids_NK >= count
    number, parts = map(int, part.split("/"))
    size = count // parts
    return (ids_NK >= (number - 1) * size) & (ids_NK < number * size)


def _sources(count: int, order: str) -> Tensor:
    """The expert whose weights each expert has."""
    own = torch.arange(count)
    if order in ("next", "previous"):
        return own.roll(-1 if order == "next" else 1)
    if order == "halves":
        return own.roll(count // 2)
    if order == "reversed":
        return own.flip(0)
    if order.startswith((_IN_TURN, _IN_BLOCKS, _OF_FIRST, _OF_LAST)):
        ranks = int(order.rpartition(" ")[2])
        if count % ranks:
            raise InapplicableError(f"{count} experts do not divide among {ranks} ranks")
        size = count // ranks
        if order.startswith((_OF_FIRST, _OF_LAST)):
            return own % size + (count - size if order.startswith(_OF_LAST) else 0)
        shape = (-1, ranks) if order.startswith(_IN_TURN) else (ranks, -1)
        return own.view(shape).T.flatten()
    one, other = map(int, order.split("<>"))
    own[[one, other]] = own[[other, one]]
    return own


@contextmanager
def _rerouted(model: Any, place: str, change: Any) -> Iterator[None]:
    """Ids and weights of the chosen experts are changed where the experts receive them.

    Raises:
        InapplicableError: if the layers have no experts, or these take other inputs.
    """
    blocks = expert_blocks(model)
    chosen = list(blocks.values()) if place == EVERYWHERE else [blocks.get(place)]
    if not chosen or None in chosen:
        raise InapplicableError(f"this model has no experts in {place}")

    def hook(block: nn.Module, inputs: Any, named: dict[str, Any]) -> Any:
        values = [*inputs, *named.values()]
        tensors = [each for each in values if isinstance(each, Tensor)]
        ids = [each for each in tensors if not each.is_floating_point()]
        weights = [each for each in tensors if ids and each.shape == ids[0].shape]
        weights = [each for each in weights if each.is_floating_point()]
        if len(ids) != 1 or len(weights) != 1:
            raise InapplicableError("these experts do not receive ids and weights")
        new = dict(
            zip((id(ids[0]), id(weights[0])), change(block, ids[0], weights[0]), strict=True)
        )
        return (
            tuple(new.get(id(each), each) for each in inputs),
            {name: new.get(id(each), each) for name, each in named.items()},
        )

    handles = [
        block.register_forward_pre_hook(hook, with_kwargs=True)
        for block in chosen
        if block is not None
    ]
    with until_end(handles):
        yield

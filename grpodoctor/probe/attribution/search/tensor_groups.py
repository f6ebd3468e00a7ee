"""Groups of tensors, and parts of tensors, that a weight update misses together.

A name such as `lm_head.weight[1/4]` is the first quarter of a tensor's rows; `q_proj.weight[rank
1/4]` is the shard of the first of four tensor-parallel ranks, which may be columns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from grpodoctor.probe.attribution.tensors import kind_of, layer_of

Names = frozenset[str]
Key = TypeVar("Key", bound=Hashable)
Place = tuple[str, int | None]
"""Kind and layer of a tensor."""
COUNTS = (2, 4, 8)
"""Numbers of ranks."""
_OF_VOCABULARY = ("embeddings", "output head")
_MOST_SHARDS = 256
"""Shards that are tried."""


def rank_shards(names: Names) -> list[Names]:
    """What one rank holds of several tensors, from many tensors to few.

    A tensor-parallel rank has a part of each projection, with or without that of the vocabulary; a
    rank of experts has some experts; FSDP divides the rows of all tensors. Engines that update by
    kinds of tensors or layer by layer miss the rank's part of one kind, or of one layer.
    """
    inside = frozenset(name for name in names if kind_of(name) not in _OF_VOCABULARY)
    experts = frozenset(name for name in names if kind_of(name) == "experts")
    wholes = [(inside, "rank "), (names, "rank "), (names, ""), (experts, "")]
    wholes += [(group, "rank ") for group in grouped(inside, kind_of).values()]
    wholes += [(group, "rank ") for group in grouped(inside, layer_of).values()]
    shards = (shard for group, how in wholes if group for shard in _shards_of(group, how))
    return list(dict.fromkeys(shards))[:_MOST_SHARDS]


def _shards_of(names: Names, how: str) -> Iterator[Names]:
    for count in COUNTS:
        for number in range(1, count + 1):
            yield frozenset(f"{name}[{how}{number}/{count}]" for name in names)


def parts_of(name: str, counts: Sequence[int] = COUNTS) -> list[Names]:
    """All parts of a tensor's rows, in several numbers of parts."""
    return [shard for count in counts for shard in _parts_in(name, count)]


def _parts_in(name: str, count: int) -> list[Names]:
    return [frozenset({f"{name}[{part}/{count}]"}) for part in range(1, count + 1)]


def is_part(name: str) -> bool:
    """Whether a name is that of a part of a tensor, such as `lm_head.weight[1/4]`."""
    return name.endswith("]")


def tensor_of(name: str) -> str:
    """The tensor to which a part belongs; the name itself if it is no part."""
    return name.partition("[")[0]


def place_of(name: str) -> Place:
    """Kind and layer of a tensor."""
    return kind_of(name), layer_of(name)


def grouped(names: Iterable[str], key: Callable[[str], Key]) -> Mapping[Key, Names]:
    """The names by what a function returns for them."""
    groups: dict[Key, set[str]] = {}
    for name in names:
        groups.setdefault(key(name), set()).add(name)
    return {group: frozenset(members) for group, members in groups.items()}

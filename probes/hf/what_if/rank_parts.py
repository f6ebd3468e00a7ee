"""Edits of the part of projections that one tensor-parallel rank holds.

A rank loads nothing, so that its part stays zero; every rank loads the first one's part; or each
rank has the part of the next one. The parts are those that engines divide, see `tensor_parts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from contract import InapplicableError
from torch import Tensor, nn

from hf.what_if import sites
from hf.what_if.modules import replaced
from hf.what_if.tensor_parts import part_indices, rank_blocks

_COUNTS = (2, 4, 8)
LOST, FIRST, NEXT = "lost", "first", "next"
ALL = sites.EVERY
"""All projections of the layers."""


def changes() -> list[str]:
    """`lost 2/4`: the second of four ranks has none; `first 4`; `next 4`: see the module."""
    lost = [f"{LOST} {number}/{count}" for count in _COUNTS for number in range(1, count + 1)]
    return [*lost, *(f"{how} {count}" for how in (FIRST, NEXT) for count in _COUNTS)]


def groups_of(name: str) -> list[str]:
    """The sites that contain a parameter: itself, the modules around it, and all projections."""
    parts = name.split(".")
    around = [".".join(parts[:depth]) + f".{ALL}" for depth in range(1, len(parts) - 1)]
    return [name, *around, ALL]


@contextmanager
def rank_part(model: nn.Module, value: Any) -> Iterator[None]:
    """A change of the ranks' parts, `[site, change]`; sites as in `groups_of`, `1:` for a layer."""
    site, change = map(str, value)
    paths = {id(weight): name for name, weight in model.named_parameters()}
    with ExitStack() as stack:
        is_divided = False
        for weight in sites.weights_at(model, f"{site}/weight"):
            new = changed(model, paths[id(weight)], weight, change)
            if new is not None:
                is_divided = True
                stack.enter_context(replaced([weight], lambda _, new=new: new))
        if not is_divided:
            raise InapplicableError(f"no tensor of {site} has such parts")
        yield


def changed(model: nn.Module, name: str, weight: Tensor, change: str) -> Tensor | None:
    """A parameter after a change; None if ranks do not divide it so."""
    blocks = rank_blocks(model, name, weight)
    how, _, part = change.partition(" ")
    number, _, count = part.rpartition("/")
    if blocks is None:
        return None
    at = blocks[0]
    parts = [part_indices(weight, *blocks, n, int(count)) for n in range(1, int(count) + 1)]
    places = [each.to(weight.device) for each in parts if each is not None]
    if len(places) < int(count):
        return None
    new = weight.detach().clone()
    if how == LOST:
        return new.index_fill_(at, places[int(number) - 1], 0)
    for rank, place in enumerate(places):
        source = places[0] if how == FIRST else places[(rank + 1) % len(places)]
        new.index_copy_(at, place, weight.detach().index_select(at, source))
    return None if torch.equal(new, weight) else new

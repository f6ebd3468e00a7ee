"""Updates of the weights of which only a part arrived, or arrived in a coarse format.

Engines send the largest changes of each tensor, drop small ones, cut a transfer short, or compress
the changes. The older weights show what each of these leaves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from contract import InapplicableError
from torch import Tensor

from hf.what_if.rounding import rounded

_TINY = 1e-9
"""Error of a product that is a whole number; smallest weight to which a change is relative."""
_HALVINGS = 50
"""Bisections of a threshold: more than the digits of a 32-bit number."""


def partial_update(
    own: Mapping[str, Tensor], older: Mapping[str, Tensor], how: str, share: float
) -> dict[str, Tensor]:
    """The tensors after a share of the elements of an update arrived.

    Args:
        own: the tensors after the whole update.
        older: the tensors before it, with the same names and shapes.
        how: which elements arrived. `largest`, `smallest`: by the size of the change, the same
            share of each tensor; `largest:down`, `largest:up` and `largest:quantile` make another
            whole number of it. `largest of all`: above one threshold for all tensors; `relative`:
            the same for changes relative to the older value. `rows`: whole rows, by their norm.
            `first`, `last`: in the order of each tensor's memory. `random:3`: drawn at random with
            a seed.
        share: of the elements, 0 to 1.

    Raises:
        InapplicableError: if there is no such part, or the share is none.
    """
    if not 0 <= share <= 1:
        raise InapplicableError(f"{share:g} is no share of an update")
    changes = {name: own[name].float() - older[name].float() for name in own}
    kind, _, detail = how.partition(":")
    if kind in ("largest of all", "relative"):
        sizes = [_size(changes[name], older[name], kind) for name in own]
        least = _threshold(sizes, share)
        arrived = {name: size >= least for name, size in zip(own, sizes, strict=True)}
    elif kind == "random":
        draw = torch.Generator().manual_seed(int(detail or 0))
        arrived = {
            name: (torch.rand(change.shape, generator=draw) < share).to(change.device)
            for name, change in changes.items()
        }
    else:
        arrived = {name: _arrived(each, kind, detail, share) for name, each in changes.items()}
    return {name: torch.where(arrived[name], own[name], older[name].to(own[name])) for name in own}


def coarse_update(
    own: Mapping[str, Tensor], older: Mapping[str, Tensor], scheme: str
) -> dict[str, Tensor]:
    """The older tensors plus an update in a coarse format.

    Args:
        own: the tensors after the update.
        older: the tensors before it, with the same names and shapes.
        scheme: of `rounded`, or `sign`: the sign of each change times the tensor's mean change.

    Raises:
        InapplicableError: if there is no such format.
    """
    coarse = {}
    for name, weight in own.items():
        change = weight.float() - older[name].float()
        at_least_2d = change if change.ndim > 1 else change[None]
        low = (
            change.sign() * change.abs().mean()
            if scheme == "sign"
            else rounded(at_least_2d, scheme).reshape(change.shape)
        )
        coarse[name] = (older[name].float() + low).to(weight)
    return coarse


def _size(change: Tensor, older: Tensor, kind: str) -> Tensor:
    size = change.abs()
    if kind == "relative":
        return size / older.float().abs().clamp(min=_TINY)
    return size


def _arrived(change: Tensor, kind: str, counted: str, share: float) -> Tensor:
    """The elements of one tensor that arrived."""
    count = round(share * change.numel())
    at = torch.arange(change.numel(), device=change.device).reshape(change.shape)
    if kind == "first":
        return at < count
    if kind == "last":
        return at >= change.numel() - count
    if kind == "largest":
        return _largest(change.abs(), _count(change.numel(), share, counted))
    if kind == "smallest":
        return ~_largest(change.abs(), change.numel() - count)
    if kind == "rows":
        norms = change.reshape(change.shape[0], -1).norm(dim=1) if change.ndim > 1 else change.abs()
        chosen = _largest(norms, round(share * norms.numel()))
        return chosen.reshape(-1, *[1] * (change.ndim - 1)).expand_as(change)
    raise InapplicableError(f"there is no part {kind!r} of an update")


def _count(total: int, share: float, counted: str) -> int:
    """How many elements a share of a tensor is."""
    if counted == "quantile":  # those that reach torch's quantile, which interpolates
        return total - math.ceil((1 - share) * (total - 1) - _TINY)
    if counted == "down":
        return max(1, math.floor(share * total + _TINY))
    return math.ceil(share * total - _TINY) if counted == "up" else round(share * total)


def _largest(sizes: Tensor, count: int) -> Tensor:
    """The largest of some numbers; equal ones together."""
    if count <= 0:
        return torch.zeros_like(sizes, dtype=torch.bool)
    least = sizes.flatten().kthvalue(sizes.numel() - count + 1).values
    return sizes >= least


def _threshold(sizes: Sequence[Tensor], share: float) -> float:
    """The number that a share of all numbers reaches, without a copy of all of them."""
    count = round(share * sum(size.numel() for size in sizes))
    if count == 0:
        return math.inf
    low, high = 0.0, math.nextafter(max(float(size.max()) for size in sizes), math.inf)
    if high > 1:  # relative changes of tiny weights are huge
        low_log, high_log = math.log(1e-30), math.log(high)
        return math.exp(_bisected(sizes, count, low_log, high_log, is_log=True))
    return _bisected(sizes, count, low, high, is_log=False)


def _bisected(
    sizes: Sequence[Tensor], count: int, low: float, high: float, *, is_log: bool
) -> float:
    """The largest bound that so many numbers reach."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        least = math.exp(middle) if is_log else middle
        if sum(int((size >= least).sum()) for size in sizes) >= count:
            low = middle
        else:
            high = middle
    return low

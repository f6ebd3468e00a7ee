"""Small messages between the ranks of a training, without a collective call.

A collective call waits for every rank. A rank that left its loop early, or a script that records on
rank 0 only, would make the training hang in it. The ranks therefore use the key-value store through
which `torch.distributed` connected them: each posts its part and continues, and rank 0 takes what
has arrived. No call waits for another rank.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, Self

_CHUNK = 4 << 20
"""Bytes per entry: a TCP store of torch refuses entries of 8 MB."""

_connections = count()
"""Numbers the exchanges of this process. Ranks run the same program, so the numbers agree."""


@dataclass(frozen=True, slots=True)
class RankInfo:
    """The number of this process, and the number of processes that train together."""

    rank: int = 0
    world: int = 1


def this_rank() -> RankInfo:
    """This process's rank, from `torch.distributed` or else from the launcher's variables."""
    distributed = _distributed()
    if distributed is not None:
        return RankInfo(distributed.get_rank(), distributed.get_world_size())
    try:
        info = RankInfo(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    except (KeyError, ValueError):
        return RankInfo()
    return info if 0 <= info.rank < info.world else RankInfo()


def _distributed() -> Any:
    """`torch.distributed` if the training has initialized it; never imports torch."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


class Store(Protocol):
    """The part of torch's stores that is used."""

    def set(self, key: str, value: bytes) -> None:
        """Store a value."""

    def get(self, key: str) -> bytes:
        """Read a value; waits until there is one."""

    def check(self, keys: list[str]) -> bool:
        """Whether all keys have a value."""

    def delete_key(self, key: str) -> bool:
        """Remove a value."""


class RankExchange:
    """Messages between the ranks. Each message has one sender and one name.

    Args:
        store: the store that the ranks share.
        info: this process's rank.
    """

    def __init__(self, store: Store, info: RankInfo) -> None:
        self.info = info
        self._store = store
        self._prefix = f"grpodoctor/{next(_connections)}"

    @classmethod
    def connect(cls) -> Self | None:
        """The exchange with the other ranks; None without any, or without a store."""
        distributed = _distributed()
        info = this_rank()
        if distributed is None or info.world < 2:
            return None
        store = distributed.distributed_c10d._get_default_store()  # noqa: SLF001 - no public way
        return None if store is None else cls(store, info)

    def post(self, name: str, data: bytes) -> None:
        """Leave a message; returns at once.

        Raises:
            RuntimeError: if the store cannot be reached.
        """
        starts = range(0, max(1, len(data)), _CHUNK)
        for number, start in enumerate(starts):
            self._store.set(f"{self._prefix}/{name}/{number}", data[start : start + _CHUNK])
        self._store.set(f"{self._prefix}/{name}", str(len(starts)).encode())

    def peek(self, name: str) -> bytes | None:
        """Read a message and leave it for other ranks; None if it has not arrived.

        Raises:
            RuntimeError: if the store cannot be reached.
        """
        head = f"{self._prefix}/{name}"
        if not self._store.check([head]):
            return None
        parts = int(self._store.get(head))
        return b"".join(bytes(self._store.get(f"{head}/{part}")) for part in range(parts))

    def take(self, name: str) -> bytes | None:
        """Read a message and remove it; None if it has not arrived.

        Raises:
            RuntimeError: if the store cannot be reached.
        """
        data = self.peek(name)
        if data is not None:
            head = f"{self._prefix}/{name}"
            for part in range(max(1, -(-len(data) // _CHUNK))):
                self._store.delete_key(f"{head}/{part}")
            self._store.delete_key(head)
        return data

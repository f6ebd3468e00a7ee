"""Checksums of TensorBoard's event files, computed for many messages at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from grpodoctor.support.arrays import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
"""Castagnoli's polynomial, bit-reversed."""

_MASK_DELTA = 0xA282EAD8
_HEAD = 12

Words: TypeAlias = "NDArray[np.uint32]"
Mask: TypeAlias = "NDArray[np.bool_]"


@lru_cache(maxsize=1)
def _table() -> Words:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table.astype(np.uint32)


def _masked(crcs: Words) -> Words:
    inverted = ~crcs
    rotated = (inverted >> np.uint32(15)) | (inverted << np.uint32(17))
    return rotated + np.uint32(_MASK_DELTA)


def masked_crcs(messages: Sequence[bytes]) -> list[int]:
    """Return the masked checksum of each message, computed byte position by byte position."""
    if not messages:
        return []
    lengths = np.array([len(each) for each in messages])
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    data = np.frombuffer(b"".join(messages) + b"\0", dtype=np.uint8)
    order = np.argsort(-lengths, kind="stable")
    sorted_starts, sorted_lengths = starts[order], lengths[order]
    crcs = np.full(len(messages), 0xFFFFFFFF, dtype=np.uint32)
    for column in range(int(lengths.max())):
        active = int(np.searchsorted(-sorted_lengths, -column, side="left"))
        _advance(crcs[:active], data[sorted_starts[:active] + column])
    result = np.empty_like(crcs)
    result[order] = _masked(crcs)
    return [int(each) for each in result]


def _advance(crcs: Words, data: NDArray[np.uint8]) -> None:
    """Add one byte of each message, in place."""
    crcs[:] = _table()[(crcs ^ data) & 0xFF] ^ (crcs >> np.uint32(8))


def valid_frames(block: bytes) -> Mask:
    """Return the positions in a block with a length whose checksum is correct."""
    count = len(block) - _HEAD + 1
    if count <= 0:
        return np.zeros(0, dtype=bool)
    data = np.frombuffer(block, dtype=np.uint8)
    crcs = np.full(count, 0xFFFFFFFF, dtype=np.uint32)
    for column in range(8):
        _advance(crcs, data[column : column + count])
    stated = sum(
        (data[8 + place : 8 + place + count].astype(np.uint32) << np.uint32(8 * place))
        for place in range(4)
    )
    return np.asarray(_masked(crcs) == stated)

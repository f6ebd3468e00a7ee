"""Similarity of the responses to one prompt, by MinHash signatures of their texts.

A signature is computed from one response alone and takes eight bytes. Shards of a dump therefore
measure their own responses, and the pairs of a group are compared when all shards are known.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from grpodoctor.support.arrays import np
from grpodoctor.vocabulary.values import Mean, NotApplicable, Reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHINGLE = 6
"""Bytes of a piece. Pieces of five to nine bytes are usual for texts of a few thousand bytes."""
MOST_BYTES = 4096
"""Bytes of a response that are compared; the rest is ignored."""
_HASHES = 8
_FACTORS = (
    0x9E3779B97F4A7C15,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0xD6E8FEB86659FD93,
    0xA0761D6478BD642F,
    0xE7037ED1A0B428DB,
    0x8EBC6AF09C88C6E3,
    0x589965CC75374CC3,
)
"""Odd numbers with about as many ones as zeros: one multiplicative hash function each."""
_BYTE = 0xFF


def signature(text: bytes) -> int:
    """The low bytes of eight MinHash values of a text's pieces; 0 if the text is too short."""
    data = np.frombuffer(text[:MOST_BYTES], np.uint8).astype(np.uint64)
    if data.size < SHINGLE:
        return 0
    count = data.size - SHINGLE + 1
    pieces_N = np.zeros(count, np.uint64)
    for place in range(SHINGLE):
        pieces_N |= data[place : place + count] << np.uint64(8 * place)
    hashes_HN = _mixed(np.array(_FACTORS, np.uint64)[:, None] * pieces_N)
    lowest_H = hashes_HN.min(axis=1) & np.uint64(_BYTE)
    packed_H = lowest_H << (np.arange(_HASHES, dtype=np.uint64) * np.uint64(8))
    return int(np.bitwise_or.reduce(packed_H)) or 1


def _mixed(products_HN: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread the high bits of a product, which depend on all bits of a piece, over all bits."""
    products_HN ^= products_HN >> np.uint64(30)
    products_HN *= np.uint64(0xBF58476D1CE4E5B9)
    products_HN ^= products_HN >> np.uint64(27)
    return products_HN


def group_similarity(
    signatures_B: NDArray[np.uint64], groups_B: NDArray[np.generic]
) -> Reading | None:
    """Mean similarity over all pairs of responses of a group; None without a known response.

    Low bytes of different values agree once in 256, so unrelated responses have a mean of .004.
    """
    known_B = signatures_B != 0
    if not known_B.any():
        return None
    bytes_BH = signatures_B[known_B].astype("<u8").view(np.uint8).reshape(-1, _HASHES)
    _, index_B = np.unique(groups_B[known_B], return_inverse=True)
    totals = [_pairs(bytes_BH[index_B == group]) for group in range(int(index_B.max()) + 1)]
    agreeing, pairs = (sum(total[place] for total in totals) for place in (0, 1))
    if not pairs:
        return NotApplicable("no prompt has two responses of six bytes or more")
    return Mean(Fraction(agreeing, _HASHES), pairs)


def _pairs(bytes_BH: NDArray[np.uint8]) -> tuple[int, int]:
    """Agreeing hash values over all pairs of rows, and the number of pairs."""
    count = len(bytes_BH)
    agreeing = 0
    for row in range(count - 1):
        agreeing += int(np.count_nonzero(bytes_BH[row] == bytes_BH[row + 1 :]))
    return agreeing, count * (count - 1) // 2

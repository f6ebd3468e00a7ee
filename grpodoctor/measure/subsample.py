"""Which responses are looked into at length: compressed, searched for words, their 3-grams counted.

That costs more than all other measuring, and a mean over some of them tells what a mean over all
does. Of each step, and of each rank where several sample, those of the lowest lots are drawn. A
response's lot hangs on what was asked and answered alone: live, offline and on a cluster, the same
responses are drawn, however the dump was cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from grpodoctor.measure.batch import Flags

Lots = NDArray[np.uint64]

LOOKED_INTO = 32
"""Responses of a step and rank that are compressed and whose 3-grams are counted: the mean's error
is a sixth of the spread between responses."""
SEARCHED = 128
"""Those that are searched for words of second thoughts: a share of a half is told to 0.04."""


def name_hash(text: str) -> int:
    """64 bits, never 0, the same in every process."""
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest()) or 1


def name_hashes(texts: Sequence[str]) -> Lots:
    """The hash of each, for texts of which many are alike."""
    known = {text: name_hash(text) for text in set(texts)}
    return np.array([known[text] for text in texts], np.uint64)


def text_prints(texts: Sequence[bytes]) -> Lots:
    """A number per response that equal texts share, the length among its 64 bits; 0 for none."""
    sums = np.fromiter(map(crc32, texts), np.uint64, len(texts))
    return (np.fromiter(map(len, texts), np.uint64, len(texts)) << np.uint64(32)) | sums


def lots_of(prompts_B: Lots, texts_B: Lots, tokens_B: Lots | None = None) -> Lots:
    """The lot of each response; 0 where there is neither text nor token.

    Args:
        prompts_B: hashes of the prompts; 0 where they are not known.
        texts_B: what `text_prints` says of the responses.
        tokens_B: what `fingerprints` says of their tokens, which count where a text is empty.
    """
    prints_B = texts_B if tokens_B is None else np.where(texts_B == 0, tokens_B, texts_B)
    mixed_B = prompts_B * np.uint64(0x9E3779B97F4A7C15) + prints_B
    # The last steps of splitmix64: they spread whatever differs over all bits.
    mixed_B = (mixed_B ^ (mixed_B >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed_B = (mixed_B ^ (mixed_B >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed_B ^= mixed_B >> np.uint64(31)
    return np.where(prints_B == 0, np.uint64(0), np.maximum(mixed_B, np.uint64(1)))


def among(lots_B: Lots, chosen_B: Flags) -> Lots:
    """The lots where only those chosen take part."""
    return np.where(chosen_B, lots_B, np.uint64(0))


def drawn(lots_B: Lots, most: int, *owners: NDArray[np.generic]) -> Flags:
    """Those of the lowest lots, at most so many of each owner; of equal lots the first.

    Args:
        lots_B: 0 for what takes no part.
        most: how many.
        owners: what those of one owner share: steps, ranks.
    """
    chosen_B: Flags = lots_B != 0
    if np.count_nonzero(chosen_B) <= most:
        return chosen_B
    rows = np.flatnonzero(chosen_B)
    keys = [each for each in (owner[rows] for owner in owners) if (each != each[0]).any()]
    chosen_B[rows] = (
        _lowest(lots_B[rows], most, keys) if keys else _lowest_of_all(lots_B[rows], most)
    )
    return chosen_B


def _lowest_of_all(lots_B: Lots, most: int) -> Flags:
    border = np.partition(lots_B, most - 1)[most - 1]
    chosen_B: Flags = lots_B < border
    equal = np.flatnonzero(lots_B == border)
    chosen_B[equal[: most - np.count_nonzero(chosen_B)]] = True
    return chosen_B


def _lowest(lots_B: Lots, most: int, keys: list[NDArray[np.generic]]) -> Flags:
    order = np.lexsort((lots_B, *keys))
    begins = np.arange(order.size) == 0
    for key in keys:
        begins[1:] |= key[order[1:]] != key[order[:-1]]
    starts = np.flatnonzero(begins)
    places = np.arange(order.size) - np.repeat(starts, np.diff(starts, append=order.size))
    chosen_B = np.empty(order.size, dtype=bool)
    chosen_B[order] = places < most
    return chosen_B

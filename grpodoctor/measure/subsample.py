"""Selection of responses for expensive measurements: compression, word search, 3-grams.

These cost more than all other measurements, and a mean over a subsample is accurate enough. In each
step, and on each rank if several ranks sample, the responses of lowest hash rank are selected. The
hash rank depends only on prompt and response. A live run, an offline run and a cluster therefore
select the same responses, however the dump is split into shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeAlias
from zlib import crc32

from grpodoctor.support.arrays import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from grpodoctor.measure.batch import Flags

HashRanks: TypeAlias = "NDArray[np.uint64]"

COMPRESSED_RESPONSES = 32
"""Responses per step and rank that are compressed and whose 3-grams are counted. The standard error
of the mean is about a sixth of the spread between responses."""
SEARCHED_RESPONSES = 128
"""Responses per step and rank that are searched for words of reflection. The standard error of a
share of one half is 0.04."""

PAIRED_RESPONSES = 64
"""Responses per step and rank that are compared with the others of their group: whole groups, since
the selection goes by prompt first."""
_WITHIN_PROMPT = 0xFFFF
"""Low bits of a hash rank that order the responses of one prompt."""


def name_hash(text: str) -> int:
    """A 64-bit hash, never 0, the same in every process."""
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest()) or 1


def name_hashes(texts: Sequence[str]) -> HashRanks:
    """The hash of each text, computed once per distinct text."""
    known = {text: name_hash(text) for text in set(texts)}
    return np.array([known[text] for text in texts], np.uint64)


def text_fingerprints(texts: Sequence[bytes]) -> HashRanks:
    """A 64-bit hash of each response's text, which includes the length; 0 for empty text."""
    sums = np.fromiter(map(crc32, texts), np.uint64, len(texts))
    return (np.fromiter(map(len, texts), np.uint64, len(texts)) << np.uint64(32)) | sums


def hash_ranks(
    prompts_B: HashRanks, texts_B: HashRanks, tokens_B: HashRanks | None = None
) -> HashRanks:
    """The hash rank of each response; 0 without text and tokens.

    Args:
        prompts_B: hashes of the prompts; 0 if unknown.
        texts_B: result of `text_fingerprints`.
        tokens_B: result of `fingerprints`, used where the text is empty.
    """
    prints_B = texts_B if tokens_B is None else np.where(texts_B == 0, tokens_B, texts_B)
    mixed_B = prompts_B * np.uint64(0x9E3779B97F4A7C15) + prints_B
    # The last steps of splitmix64, which spread any difference over all bits.
    mixed_B = (mixed_B ^ (mixed_B >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed_B = (mixed_B ^ (mixed_B >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed_B ^= mixed_B >> np.uint64(31)
    return np.where(prints_B == 0, np.uint64(0), np.maximum(mixed_B, np.uint64(1)))


def prompt_ranks(prompts_B: HashRanks, hash_ranks_B: HashRanks) -> HashRanks:
    """Hash ranks that select whole prompts; 0 where prompt or response is unknown."""
    spread_B = prompts_B * np.uint64(0x9E3779B97F4A7C15)
    within_prompt = np.uint64(_WITHIN_PROMPT)
    ranks_B = (spread_B & ~within_prompt) | (hash_ranks_B & within_prompt)
    known_B = (prompts_B != 0) & (hash_ranks_B != 0)
    return np.where(known_B, np.maximum(ranks_B, np.uint64(1)), np.uint64(0))


def only_where(hash_ranks_B: HashRanks, candidates_B: Flags) -> HashRanks:
    """The hash ranks of the candidates; 0 for all others."""
    return np.where(candidates_B, hash_ranks_B, np.uint64(0))


def lowest_ranked(hash_ranks_B: HashRanks, most: int, *owners: NDArray[np.generic]) -> Flags:
    """Select the responses of lowest hash rank, at most `most` per owner; ties keep the first.

    Args:
        hash_ranks_B: 0 for responses that cannot be selected.
        most: maximum number per owner.
        owners: columns that together identify an owner, such as step and rank.
    """
    selected_B: Flags = hash_ranks_B != 0
    if np.count_nonzero(selected_B) <= most:
        return selected_B
    rows = np.flatnonzero(selected_B)
    keys = [key for key in (owner[rows] for owner in owners) if (key != key[0]).any()]
    selected_B[rows] = (
        _lowest_per_owner(hash_ranks_B[rows], most, keys)
        if keys
        else _lowest(hash_ranks_B[rows], most)
    )
    return selected_B


def _lowest(hash_ranks_B: HashRanks, most: int) -> Flags:
    limit = np.partition(hash_ranks_B, most - 1)[most - 1]
    selected_B: Flags = hash_ranks_B < limit
    ties = np.flatnonzero(hash_ranks_B == limit)
    selected_B[ties[: most - np.count_nonzero(selected_B)]] = True
    return selected_B


def _lowest_per_owner(hash_ranks_B: HashRanks, most: int, keys: list[NDArray[np.generic]]) -> Flags:
    order = np.lexsort((hash_ranks_B, *keys))
    is_start = np.arange(order.size) == 0
    for key in keys:
        is_start[1:] |= key[order[1:]] != key[order[:-1]]
    starts = np.flatnonzero(is_start)
    places = np.arange(order.size) - np.repeat(starts, np.diff(starts, append=order.size))
    selected_B = np.empty(order.size, dtype=bool)
    selected_B[order] = places < most
    return selected_B

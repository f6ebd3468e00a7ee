"""Readings of the responses' text: repetition, reflection, compressibility."""

from __future__ import annotations

import math
import re
import zlib
from typing import TYPE_CHECKING

from grpodoctor.measure.ragged import Ragged, fingerprints
from grpodoctor.measure.similarity import SHINGLE, group_similarity, signature
from grpodoctor.measure.subsample import (
    COMPRESSED_RESPONSES,
    PAIRED_RESPONSES,
    SEARCHED_RESPONSES,
    HashRanks,
    hash_ranks,
    lowest_ranked,
    name_hashes,
    only_where,
    prompt_ranks,
    text_fingerprints,
)
from grpodoctor.support.arrays import np
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate, Reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from grpodoctor.measure.batch import RolloutBatch

LOOP_COPIES = 4
"""Copies of a block at the end of a response that count as a loop."""
LOOP_TOKENS = 16
"""Minimum length of a loop, in tokens: three periods in a row are not a loop."""
LONGEST_BLOCK = 64
"""Longest block that is searched for, in tokens."""

PROBE = 4
"""Last tokens that must occur one block earlier before a full search for a loop."""
LOOP_BYTES = 64
"""Minimum length of a loop if only the text is known: four bytes per token."""
LONGEST_BLOCK_BYTES = 256

_WORD = 8
"""Bytes compared at once."""
_GLANCE = 3
"""Bytes of these that are compared first, in every text; one text in ten passes."""
_ALL_EMPTY = NotApplicable("every response is empty")
GRAM = 3
"""Tokens per n-gram."""
_TOKEN_BITS = 21
"""Three ids of a vocabulary of up to two million fit into one 64-bit key."""
_REFLECTION = re.compile(
    rb"\b(?:wait|hold on|let me (?:check|recheck|verify|reconsider)|re-?check|double-?check"
    rb"|re-?evaluate|alternatively|on second thought|actually)\b",
    re.IGNORECASE,
)


REFLECTION_RE2 = f"(?i){_REFLECTION.pattern.decode()}"
"""The same for Arrow's regular expressions over a binary column, which are ten times as fast."""


def text_readings(batch: RolloutBatch) -> dict[str, Reading]:
    """`text/*`; n-grams and loops are measured on the generated tokens.

    Loops are measured in all responses, everything else in a subsample. Without texts, only n-grams
    and loops are measured.
    """
    known = batch.texts or [""] * len(batch.sequence_ids)
    texts = [text.encode("utf-8", "surrogatepass") for text in known]
    tokens = Ragged.of_lengths(batch.tokens_BT[batch.mask_BT], batch.lengths_B.astype(np.int64))
    prompts_B, prints_B = name_hashes(batch.prompts), text_fingerprints(texts)
    hash_ranks_B = hash_ranks(prompts_B, prints_B, fingerprints(tokens))
    pairable_B = np.array([len(text) >= SHINGLE for text in texts])
    paired_B = only_where(prompt_ranks(prompts_B, hash_ranks_B), pairable_B)
    with_text_B, with_grams_B = (
        only_where(hash_ranks_B, prints_B != 0),
        only_where(hash_ranks_B, tokens.lengths_B >= GRAM),
    )

    def subsample(hash_ranks_B: HashRanks, most: int) -> list[int]:
        rows: list[int] = np.flatnonzero(lowest_ranked(hash_ranks_B, most)).tolist()
        return rows

    of_tokens: dict[str, Reading] = {
        "text/unique_ngram_rate": _unique_trigrams(
            [tokens.row(row) for row in subsample(with_grams_B, COMPRESSED_RESPONSES)]
        ),
        "text/repetition_rate": Rate.of(_ends_in_loop(batch)),
    }
    if batch.texts is None:
        return of_tokens
    similarity = _similarity(batch, texts, subsample(paired_B, PAIRED_RESPONSES))
    return {
        **of_tokens,
        **({} if similarity is None else {"groups/text_similarity": similarity}),
        "text/reflection_rate": _reflection(
            [texts[row] for row in subsample(with_text_B, SEARCHED_RESPONSES)]
        ),
        "text/compression_ratio": _compression(
            [texts[row] for row in subsample(with_text_B, COMPRESSED_RESPONSES)]
        ),
    }


def _unique_trigrams(responses: list[NDArray[np.integer]]) -> Reading:
    """Mean over responses of the share of distinct 3-grams."""
    if not responses:
        return NotApplicable("no response has three tokens")
    return Mean.of([unique_trigrams(each) for each in responses])


def _similarity(batch: RolloutBatch, texts: list[bytes], rows: list[int]) -> Reading | None:
    signatures = np.array([signature(texts[row]) for row in rows], np.uint64)
    return group_similarity(signatures, batch.group_ids_B[rows])


def _reflection(texts: list[bytes]) -> Reading:
    if not texts:
        return _ALL_EMPTY
    return Rate.of([_REFLECTION.search(text) is not None for text in texts])


def _ends_in_loop(batch: RolloutBatch) -> NDArray[np.bool_]:
    """True for responses that end in copies of one block, ignoring the end token."""
    lengths_B = batch.lengths_B
    flat_N = batch.tokens_BT[batch.mask_BT]
    # A response that is not known to be truncated is taken to end in an end token.
    kept_B = np.maximum(lengths_B - (1 if batch.truncated_B is None else ~batch.truncated_B), 0)
    return _loops(_tails(flat_N, np.cumsum(lengths_B) - lengths_B + kept_B, kept_B))


def loops_in(tokens: Ragged, truncated_B: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """True for responses that end in copies of one block, ignoring the end token."""
    kept_B = np.maximum(tokens.lengths_B - ~truncated_B, 0)
    ends_B = tokens.offsets_B[:-1] + kept_B
    likely = np.flatnonzero(_may_loop(tokens.values_N, ends_B, kept_B))
    looping_B = np.zeros(len(tokens), dtype=bool)
    if likely.size:
        looping_B[likely] = _loops(_tails(tokens.values_N, ends_B[likely], kept_B[likely]))
    return looping_B


def _may_loop(
    flat_N: NDArray[np.integer], ends_B: NDArray[np.int64], kept_B: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Responses whose last tokens also occur one possible block earlier: all loops, few others."""
    back = np.arange(PROBE + LONGEST_BLOCK, 0, -1)
    long_B = kept_B >= LOOP_TOKENS
    if not long_B.any():
        return long_B
    tail = flat_N[np.maximum(ends_B[long_B, None] - back, 0)]
    again = np.ones((tail.shape[0], LONGEST_BLOCK), dtype=bool)
    for last in range(PROBE):
        end = tail.shape[1] - last
        again &= tail[:, end - 1 - LONGEST_BLOCK : end - 1] == tail[:, end - 1 : end]
    likely_B = long_B.copy()
    likely_B[long_B] = again.any(axis=1)
    return likely_B


def _loops(tail_BW: NDArray[np.int64]) -> NDArray[np.bool_]:
    looping_B = np.zeros(len(tail_BW), dtype=bool)
    width = tail_BW.shape[1]
    for block in range(1, LONGEST_BLOCK + 1):
        covered = max(LOOP_COPIES * block, LOOP_TOKENS)
        if covered > width:
            break
        repeats = tail_BW[:, width - covered + block :] == tail_BW[:, width - covered : -block]
        looping_B |= repeats.all(axis=1)
    return looping_B


def _tails(
    flat_N: NDArray[np.integer], ends_B: NDArray[np.integer], kept_B: NDArray[np.integer]
) -> NDArray[np.int64]:
    """The last tokens of each response before its end token, right-aligned.

    Short responses are padded with distinct numbers that are not tokens.
    """
    width = min(int(kept_B.max(initial=0)), max(LOOP_COPIES * LONGEST_BLOCK, LOOP_TOKENS))
    back_W = np.arange(width, 0, -1)
    index_BW = np.maximum(ends_B[:, None] - back_W, 0)
    return np.where(back_W <= kept_B[:, None], flat_N[index_BW], -back_W)


def may_loop(data_N: NDArray[np.uint8], ends_B: NDArray[np.int64]) -> NDArray[np.int64]:
    """Texts whose last eight bytes also occur one possible block earlier: all loops, few others.

    Args:
        data_N: the concatenated texts, in UTF-8.
        ends_B: end of each text, without trailing white space.
    """
    width = LONGEST_BLOCK_BYTES + _WORD
    near = np.flatnonzero(ends_B < width)  # not enough bytes before them
    far = np.flatnonzero(ends_B >= width)
    if not far.size:
        return near
    rows = np.lib.stride_tricks.sliding_window_view(data_N, width)[ends_B[far] - width]
    likely = np.flatnonzero(_repeats(rows, _GLANCE))
    return np.concatenate((near, far[likely[_repeats(rows[likely], _WORD)]]))


def _repeats(rows: NDArray[np.uint8], count: int) -> NDArray[np.bool_]:
    """Rows whose last `count` bytes all occur the same block earlier."""
    again = np.ones((len(rows), LONGEST_BLOCK_BYTES), dtype=bool)
    for place in range(_WORD - count, _WORD):
        last = LONGEST_BLOCK_BYTES + place
        again &= rows[:, place : place + LONGEST_BLOCK_BYTES] == rows[:, last : last + 1]
    return np.asarray(again.any(axis=1))


def text_loops(text: bytes) -> bool:
    """Whether a text ends in copies of one block, for responses without recorded tokens."""
    text = text.rstrip()
    if len(text) < LOOP_BYTES:
        return False
    probe = text[-LOOP_BYTES // 4 :]
    lowest = max(0, len(text) - len(probe) - LONGEST_BLOCK_BYTES)
    end = len(text) - 1
    while (start := text.rfind(probe, lowest, end)) >= 0:
        block = len(text) - len(probe) - start
        covered = max(LOOP_COPIES * block, LOOP_BYTES)
        if covered <= len(text) and text[len(text) - covered + block :] == text[-covered:-block]:
            return True
        end = start + len(probe) - 1
    return False


def _compression(texts: list[bytes]) -> Reading:
    """Mean compression ratio at the fastest level, which is sufficient for repetition."""
    return Mean.of([compression(text) for text in texts]) if texts else _ALL_EMPTY


def compression(text: bytes) -> float:
    """Size of a text over its size after deflate."""
    return len(text) / len(zlib.compress(text, 1))


def unique_trigrams(tokens_N: NDArray[np.integer]) -> float:
    """Share of distinct 3-grams in a response; NaN if it has none."""
    if tokens_N.size < GRAM:
        return math.nan
    keys = tokens_N.astype(np.int64)
    keys = (keys[:-2] << 2 * _TOKEN_BITS) ^ (keys[1:-1] << _TOKEN_BITS) ^ keys[2:]
    keys.sort()
    return (1 + np.count_nonzero(keys[1:] != keys[:-1])) / keys.size

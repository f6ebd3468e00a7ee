"""Readings of what the responses look like: repetition, second thoughts, compressibility."""

from __future__ import annotations

import math
import re
import zlib

import numpy as np
from numpy.typing import NDArray

from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.ragged import Ragged, fingerprints
from grpodoctor.measure.subsample import (
    LOOKED_INTO,
    SEARCHED,
    Lots,
    among,
    drawn,
    lots_of,
    name_hashes,
    text_prints,
)
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate, Reading

LOOP_COPIES = 4
"""Copies of a block at the end of a response that make a loop."""
LOOP_TOKENS = 16
"""A loop covers at least this many tokens: three full stops in a row are none."""
LONGEST_BLOCK = 64
"""Longest block that is looked for, in tokens."""

PROBE = 4
"""Last tokens that must stand a block earlier before a loop is looked for."""
LOOP_BYTES = 64
"""What a loop covers at least where only the text is known: four bytes to a token."""
LONGEST_BLOCK_BYTES = 256

_WORD = 8
"""Bytes compared at once."""
_GLANCE = 3
"""Of these, how many are compared in every text: they leave one in ten."""
_ALL_EMPTY = NotApplicable("every response is empty")
GRAM = 3
"""Tokens of the n-grams that are counted."""
_TOKEN_BITS = 21
"""Three ids of a vocabulary of up to two million fit into one 64-bit key."""
_REFLECTION = re.compile(
    rb"\b(?:wait|hold on|let me (?:check|recheck|verify|reconsider)|re-?check|double-?check"
    rb"|re-?evaluate|alternatively|on second thought|actually)\b",
    re.IGNORECASE,
)


REFLECTION_RE2 = f"(?i){_REFLECTION.pattern.decode()}"
"""The same for Arrow's engine of regular expressions over a binary column, ten times as fast."""


def text_readings(batch: RolloutBatch) -> dict[str, Reading]:
    """`text/*`; the n-grams and loops are those of the generated tokens.

    Loops are looked for in all responses, the rest in those that are drawn.
    """
    texts = [text.encode("utf-8", "surrogatepass") for text in batch.texts]
    tokens = Ragged.of_lengths(batch.tokens_BT[batch.mask_BT], batch.lengths_B.astype(np.int64))
    prints_B = text_prints(texts)
    lots_B = lots_of(name_hashes(batch.prompts), prints_B, fingerprints(tokens))
    with_text_B, with_grams_B = (
        among(lots_B, prints_B != 0),
        among(lots_B, tokens.lengths_B >= GRAM),
    )

    def those(lots_B: Lots, most: int) -> list[int]:
        rows: list[int] = np.flatnonzero(drawn(lots_B, most)).tolist()
        return rows

    return {
        "text/unique_ngram_rate": _unique_trigrams(
            [tokens.row(row) for row in those(with_grams_B, LOOKED_INTO)]
        ),
        "text/repetition_rate": Rate.of(_ends_in_loop(batch)),
        "text/reflection_rate": _reflection([texts[row] for row in those(with_text_B, SEARCHED)]),
        "text/compression_ratio": _compression(
            [texts[row] for row in those(with_text_B, LOOKED_INTO)]
        ),
    }


def _unique_trigrams(responses: list[NDArray[np.integer]]) -> Reading:
    """Mean over responses of distinct 3-grams over all of them."""
    if not responses:
        return NotApplicable("no response has three tokens")
    return Mean.of([unique_trigrams(each) for each in responses])


def _reflection(texts: list[bytes]) -> Reading:
    if not texts:
        return _ALL_EMPTY
    return Rate.of([_REFLECTION.search(text) is not None for text in texts])


def _ends_in_loop(batch: RolloutBatch) -> NDArray[np.bool_]:
    """Which responses end in copies of one block; the end token itself is left aside."""
    lengths_B = batch.lengths_B
    flat_N = batch.tokens_BT[batch.mask_BT]
    kept_B = lengths_B - ~batch.truncated_B
    return _loops(_tails(flat_N, np.cumsum(lengths_B) - lengths_B + kept_B, kept_B))


def loops_in(tokens: Ragged, truncated_B: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which responses end in copies of one block; the end token itself is left aside."""
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
    """Whose last tokens stand a possible block earlier too: few, and all that loop."""
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

    What a short response does not fill holds numbers that equal no token and not each other.
    """
    width = min(int(kept_B.max(initial=0)), max(LOOP_COPIES * LONGEST_BLOCK, LOOP_TOKENS))
    back_W = np.arange(width, 0, -1)
    index_BW = np.maximum(ends_B[:, None] - back_W, 0)
    return np.where(back_W <= kept_B[:, None], flat_N[index_BW], -back_W)


def may_loop(data_N: NDArray[np.uint8], ends_B: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which texts repeat their last eight bytes a possible block earlier: few, and all that loop.

    Args:
        data_N: the texts one after another, in UTF-8.
        ends_B: where each ends, a space or line end at its end left aside.
    """
    width = LONGEST_BLOCK_BYTES + _WORD
    near = np.flatnonzero(ends_B < width)  # of the first texts nothing is known
    far = np.flatnonzero(ends_B >= width)
    if not far.size:
        return near
    rows = np.lib.stride_tricks.sliding_window_view(data_N, width)[ends_B[far] - width]
    likely = np.flatnonzero(_repeats(rows, _GLANCE))
    return np.concatenate((near, far[likely[_repeats(rows[likely], _WORD)]]))


def _repeats(rows: NDArray[np.uint8], count: int) -> NDArray[np.bool_]:
    """Whose last bytes, so many of them, all stand one and the same block earlier."""
    again = np.ones((len(rows), LONGEST_BLOCK_BYTES), dtype=bool)
    for place in range(_WORD - count, _WORD):
        last = LONGEST_BLOCK_BYTES + place
        again &= rows[:, place : place + LONGEST_BLOCK_BYTES] == rows[:, last : last + 1]
    return np.asarray(again.any(axis=1))


def text_loops(text: bytes) -> bool:
    """Whether a text ends in copies of one block, for responses whose tokens nobody kept."""
    text = text.rstrip()
    if len(text) < LOOP_BYTES:
        return False
    probe = text[-LOOP_BYTES // 4 :]
    lowest = max(0, len(text) - len(probe) - LONGEST_BLOCK_BYTES)
    end = len(text) - 1
    while (found := text.rfind(probe, lowest, end)) >= 0:
        block = len(text) - len(probe) - found
        covered = max(LOOP_COPIES * block, LOOP_BYTES)
        if covered <= len(text) and text[len(text) - covered + block :] == text[-covered:-block]:
            return True
        end = found + len(probe) - 1
    return False


def _compression(texts: list[bytes]) -> Reading:
    """Bytes over deflated bytes, at the fastest level: repetition shows at any."""
    return Mean.of([compression(text) for text in texts]) if texts else _ALL_EMPTY


def compression(text: bytes) -> float:
    """Bytes of a text over its deflated bytes."""
    return len(text) / len(zlib.compress(text, 1))


def unique_trigrams(tokens_N: NDArray[np.integer]) -> float:
    """Distinct 3-grams over all of them in one response; NaN where it has none."""
    if tokens_N.size < GRAM:
        return math.nan
    keys = tokens_N.astype(np.int64)
    keys = (keys[:-2] << 2 * _TOKEN_BITS) ^ (keys[1:-1] << _TOKEN_BITS) ^ keys[2:]
    keys.sort()
    return (1 + np.count_nonzero(keys[1:] != keys[:-1])) / keys.size

"""Readings of what the responses look like: repetition, second thoughts, compressibility."""

from __future__ import annotations

import re
import zlib

import numpy as np
from numpy.typing import NDArray

from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate, Reading

LOOP_COPIES = 4
"""Copies of a block at the end of a response that make a loop."""
LOOP_TOKENS = 16
"""A loop covers at least this many tokens: three full stops in a row are none."""
LONGEST_BLOCK = 64
"""Longest block that is looked for, in tokens."""

_TOKEN_BITS = 21
"""Three ids of a vocabulary of up to two million fit into one 64-bit key."""
_REFLECTION = re.compile(
    r"\b(?:wait|hold on|let me (?:check|recheck|verify|reconsider)|re-?check|double-?check"
    r"|re-?evaluate|alternatively|on second thought|actually)\b",
    re.IGNORECASE,
)


def text_readings(batch: RolloutBatch) -> dict[str, Reading]:
    """`text/*`; the n-grams and loops are those of the generated tokens."""
    return {
        "text/unique_ngram_rate": _unique_trigrams(batch),
        "text/repetition_rate": Rate.of(_ends_in_loop(batch)),
        "text/reflection_rate": Rate.of([bool(_REFLECTION.search(text)) for text in batch.texts]),
        "text/compression_ratio": _compression(batch.texts),
    }


def _unique_trigrams(batch: RolloutBatch) -> Reading:
    """Mean over responses of distinct 3-grams over all of them."""
    tokens_BT, mask_BT = batch.tokens_BT.astype(np.int64), batch.mask_BT
    whole = mask_BT[:, :-2] & mask_BT[:, 1:-1] & mask_BT[:, 2:]
    first, second, third = tokens_BT[:, :-2], tokens_BT[:, 1:-1], tokens_BT[:, 2:]
    keys = (first << 2 * _TOKEN_BITS) ^ (second << _TOKEN_BITS) ^ third
    keys = np.sort(np.where(whole, keys, -1), axis=1)
    distinct = (np.diff(keys, axis=1, prepend=-1) != 0).sum(axis=1)
    counts = whole.sum(axis=1)
    filled = counts > 0
    if not filled.any():
        return NotApplicable("no response has three tokens")
    return Mean.of(distinct[filled] / counts[filled])


def _ends_in_loop(batch: RolloutBatch) -> NDArray[np.bool_]:
    """Which responses end in copies of one block; the end token itself is left aside."""
    lengths_B = batch.lengths_B
    tail_BW = _tails(batch, lengths_B)
    looping_B = np.zeros(len(lengths_B), dtype=bool)
    width = tail_BW.shape[1]
    for block in range(1, LONGEST_BLOCK + 1):
        covered = max(LOOP_COPIES * block, LOOP_TOKENS)
        if covered > width:
            break
        repeats = tail_BW[:, width - covered + block :] == tail_BW[:, width - covered : -block]
        looping_B |= repeats.all(axis=1)
    return looping_B


def _tails(batch: RolloutBatch, lengths_B: NDArray[np.integer]) -> NDArray[np.int64]:
    """The last tokens of each response before its end token, right-aligned.

    What a short response does not fill holds numbers that equal no token and not each other.
    """
    width = min(int(lengths_B.max(initial=0)), max(LOOP_COPIES * LONGEST_BLOCK, LOOP_TOKENS))
    back_W = np.arange(width, 0, -1)
    kept_B = lengths_B - ~batch.truncated_B
    flat_N = batch.tokens_BT[batch.mask_BT]
    ends_B = np.cumsum(lengths_B) - lengths_B + kept_B
    index_BW = np.maximum(ends_B[:, None] - back_W, 0)
    return np.where(back_W <= kept_B[:, None], flat_N[index_BW], -back_W)


def _compression(texts: list[str]) -> Reading:
    """Bytes over deflated bytes, at the fastest level: repetition shows at any."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts if text]
    if not encoded:
        return NotApplicable("every response is empty")
    return Mean.of([len(each) / len(zlib.compress(each, 1)) for each in encoded])

"""Processors that act on tokens which would continue a repetition of the text so far.

Shape suffixes: N tokens, V vocabulary entries.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_LONGEST = 50
"""Longest repetition that is measured, as in text-generation-webui."""


def continuations(ids: Sequence[int]) -> dict[int, int]:
    """The tokens that followed the text's end where it occurred before.

    Args:
        ids: the text so far.

    Returns:
        By token, the number of last tokens of the text that also precede an earlier occurrence of
        it, the longest of several.
    """
    found: dict[int, int] = {}
    text = np.asarray(ids, dtype=np.int64)
    for place in np.flatnonzero(text[:-1] == text[-1]).tolist() if text.size else ():
        count = 1
        while count < min(_LONGEST, place + 1) and text[place - count] == text[-1 - count]:
            count += 1
        following = int(text[place + 1])
        found[following] = max(found.get(following, 0), count)
    return found


def without_repeated(logits_NV: Tensor, before: Sequence[Sequence[int]], size: int) -> Tensor:
    """The logits without tokens that end an n-gram which the text contains already.

    Like `no_repeat_ngram_size` of transformers.
    """
    logits_NV = logits_NV.clone()
    for row, ids in enumerate(before):
        banned = [token for token, count in continuations(ids).items() if count >= size - 1]
        logits_NV[row, banned] = -torch.inf
    return logits_NV


def with_dry(
    logits_NV: Tensor, before: Sequence[Sequence[int]], allowed: int, base: float, multiplier: float
) -> Tensor:
    """The logits with the penalty DRY, which grows with the length of the repetition.

    A token that continues a repetition of `n >= allowed` tokens loses `multiplier * base ** (n -
    allowed)`, as in llama.cpp and text-generation-webui; sequence breakers are unknown here.
    """
    logits_NV = logits_NV.clone()
    for row, ids in enumerate(before):
        for token, count in continuations(ids).items():
            if count >= allowed:
                logits_NV[row, token] -= multiplier * base ** (count - allowed)
    return logits_NV

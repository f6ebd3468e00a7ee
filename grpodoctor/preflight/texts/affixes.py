"""What the texts of a file have in common at their beginning and end: instructions."""

from __future__ import annotations

from collections.abc import Sequence

Words = tuple[str, ...]

_SHARE = 0.8
"""Share of the texts that must have an affix: an instruction is in nearly every row."""
_MIN_TEXTS = 5


def common_prefix(texts: Sequence[Words]) -> Words:
    """The longest beginning that most texts have; empty for fewer than five texts."""
    if len(texts) < _MIN_TEXTS:
        return ()
    # Texts that share a beginning are neighbors in sorted order, and most texts include the middle.
    middle = sorted(texts)[len(texts) // 2]
    low, high = 0, max(len(middle) - 1, 0)
    while low < high:
        size = (low + high + 1) // 2
        prefix = middle[:size]
        # One word of each text must remain.
        count = sum(len(text) > size and text[:size] == prefix for text in texts)
        low, high = (size, high) if count >= _SHARE * len(texts) else (low, size - 1)
    return middle[:low]


def without_affixes(texts: Sequence[Words]) -> list[Words]:
    """The texts without the beginning and the end that most of them have."""
    prefix = common_prefix(texts)
    cut = [text[len(prefix) :] if text[: len(prefix)] == prefix else text for text in texts]
    suffix = common_prefix([text[::-1] for text in cut])[::-1]
    size = len(suffix)
    return [text[:-size] if size and text[-size:] == suffix else text for text in cut]

"""What the texts of a file have in common at their beginning and end: instructions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

Words = tuple[str, ...]

_SHARE = 0.8
"""Share of the texts that must have an affix: an instruction is in nearly every row."""
_MIN_TEXTS = 5


def common_prefix(texts: Sequence[Words]) -> Words:
    """The longest beginning that most texts have; empty for fewer than five texts."""
    if len(texts) < _MIN_TEXTS:
        return ()
    prefix: list[str] = []
    having = list(texts)
    while True:
        at = len(prefix)
        # One word of each text must remain.
        nexts = Counter(text[at] for text in having if len(text) > at + 1)
        if not nexts:
            return tuple(prefix)
        word, count = nexts.most_common(1)[0]
        if count < _SHARE * len(texts):
            return tuple(prefix)
        prefix.append(word)
        having = [text for text in having if len(text) > at + 1 and text[at] == word]


def without_affixes(texts: Sequence[Words]) -> list[Words]:
    """The texts without the beginning and the end that most of them have."""
    prefix = common_prefix(texts)
    cut = [text[len(prefix) :] if text[: len(prefix)] == prefix else text for text in texts]
    suffix = common_prefix([text[::-1] for text in cut])[::-1]
    size = len(suffix)
    return [text[:-size] if size and text[-size:] == suffix else text for text in cut]

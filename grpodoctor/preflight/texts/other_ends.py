"""Texts that differ from one of another set in their first or last few words only.

Texts from one template share their end by chance, such as "... buys a bicycle every Monday". So the
texts of the other set are compared with each other, too: copies are those that two sets share far
more often than one set does within itself.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from grpodoctor.preflight.texts.affixes import Words

_MOST_CUT = 4
"""Words that a greeting, a polite phrase or a signature has at most."""
_MIN_LEFT = 10
"""Words that must be equal; fewer occur in several texts by chance."""
_MIN_SHARE = 0.8
"""Part of the longer text that must be equal."""
_DEVIATIONS = 5.0
"""Standard deviations by which copies must exceed the expectation by chance."""
_MIN_COPIES, _MIN_RATE = 3, 0.02
"""Copies, and part of the texts that are copies, from which they are a rule."""


def with_other_ends(tested: Sequence[Words], others: Sequence[Words]) -> dict[int, int]:
    """The index of a text of `others` that is equal but for its first or last few words.

    Args:
        tested: the words of the held-out texts.
        others: the words of the training texts.

    Returns:
        By the index of the held-out text; empty if there are not more than by chance.
    """
    by_core: defaultdict[tuple[bool, Words], set[int]] = defaultdict(set)
    for at, text in enumerate(others):
        for core in _cores(text):
            by_core[core].add(at)
    pairs: dict[int, int] = {}
    for at, text in enumerate(tested):
        found = {other for core in _cores(text) for other in by_core.get(core, ())}
        close = [other for other in sorted(found) if _are_close(text, others[other])]
        pairs |= {at: close[0]} if close else {}
    alike = sum(
        any(_are_close(text, others[other]) and text != others[other] for other in
            {other for core in _cores(text) for other in by_core[core]} - {at})
        for at, text in enumerate(others)
    )  # fmt: skip
    chance = (alike + 1) / (len(others) + 1)
    expected = chance * len(tested)
    least = expected + _DEVIATIONS * math.sqrt(expected)
    is_rule = len(pairs) > max(least, _MIN_COPIES - 1, _MIN_RATE * len(tested))
    return pairs if is_rule else {}


def _cores(text: Words) -> Iterator[tuple[bool, Words]]:
    """A text without its first words, and without its last ones."""
    for cut in range(min(_MOST_CUT, len(text) - _MIN_LEFT) + 1):
        yield False, text[cut:]
        yield True, text[: len(text) - cut]


def _are_close(one: Words, other: Words) -> bool:
    """Whether the words that differ are a small part of the longer text."""
    size = max(len(one), len(other))
    ends = _common(one, other), _common(one[::-1], other[::-1])
    return max(ends) >= _MIN_SHARE * size


def _common(one: Words, other: Words) -> int:
    """How many words two texts have in common from their beginning."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (x, y) in enumerate(pairs) if x != y), min(len(one), len(other)))

"""Texts of one set that are also in another one, whatever surrounds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from grpodoctor.preflight.texts.affixes import Words, without_affixes

MIN_CONTAINED = 8
"""Words of a text that counts as contained in a longer one; shorter ones occur by chance."""


def overlapping(tested: Sequence[Words], others: Sequence[Words]) -> dict[int, int]:
    """The index of an equal or containing text of `others`, for each text of `tested` with one.

    Instructions that most texts of a set share do not count. A text also overlaps if one of the two
    contains the other, and the shorter has at least eight words.
    """
    tested_cores, other_cores = without_affixes(tested), without_affixes(others)
    equal: dict[Words, int] = {}
    for index, text in enumerate(other_cores):
        equal.setdefault(text, index)
    pairs = {index: equal[text] for index, text in enumerate(tested_cores) if text in equal}
    for inner, outer in _contained(_long_enough(tested_cores, tested), others):
        pairs.setdefault(inner, outer)
    for inner, outer in _contained(_long_enough(other_cores, others), tested):
        pairs.setdefault(outer, inner)
    return pairs


def _long_enough(cores: Sequence[Words], texts: Sequence[Words]) -> list[Words]:
    """The texts without instructions, or with them where too few words would be left."""
    return [
        core if len(core) >= MIN_CONTAINED else text
        for core, text in zip(cores, texts, strict=True)
    ]


def _contained(inner: Sequence[Words], outer: Sequence[Words]) -> Iterator[tuple[int, int]]:
    """Pairs of a text and a longer one that contains it."""
    starts = _by_start(inner)
    for at, text in enumerate(outer):
        for start in range(len(text) - MIN_CONTAINED + 1):
            by_length = starts.get(text[start : start + MIN_CONTAINED], {})
            for length, candidates in by_length.items():
                for candidate in candidates.get(text[start : start + length], ()):
                    yield candidate, at


_Starts = Mapping[Words, Mapping[int, Mapping[Words, list[int]]]]
"""Indices by the first words of a text, its length and the whole text."""


def _by_start(texts: Iterable[Words]) -> _Starts:
    starts: dict[Words, dict[int, dict[Words, list[int]]]] = {}
    for index, text in enumerate(texts):
        if len(text) >= MIN_CONTAINED:
            by_length = starts.setdefault(text[:MIN_CONTAINED], {})
            by_length.setdefault(len(text), {}).setdefault(text, []).append(index)
    return starts

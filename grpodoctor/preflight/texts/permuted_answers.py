"""Answers that belong to the prompts of the file, in another order.

A displacement, a reversed or a shuffled column leaves the answers as a whole what they were: the
results of all prompts, or words of all prompts. Only the rows do not fit.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from grpodoctor.preflight.texts.normal_form import number_of, numbers_of, words_of
from grpodoctor.preflight.texts.number_relations import follow_from_numbers
from grpodoctor.preflight.texts.related_prompts import are_related

_MIN_ROWS = 60
_MAX_ROWS = 600
_MIN_NUMBERS, _MAX_NUMBERS = 2, 5
_SAME_RESULTS = 0.95
"""Share of the answers that the formula must give in some order."""
_MIN_DISTINCT = 2 / 3
"""Share of different answers. Two lists of few values have the same values by chance."""
_MOST_DENSE = 0.75
"""Share of the whole numbers of a range among the answers, from which two lists of the range have
the same values by chance: inverses modulo a prime are all numbers below it."""
_OWN = 0.5
"""Share of the rows that may fit their own prompt."""
_FITS = 0.9
"""Share of the answers that must occur in the prompts of the other order."""
_EXCESS = 0.4
"""By how much more often than in any order."""
_MIN_WORDS = 5
"""Different answers."""


def permuted_numbers(prompts: Sequence[str], answers: Sequence[str]) -> list[int]:
    """Rows whose numbers are the results of all prompts by one formula, but not of their own."""
    values = [number_of(answer) for answer in answers]
    numbers = [numbers_of(prompt) for prompt in prompts]
    sizes = Counter(
        len(each) for each, value in zip(numbers, values, strict=True) if value is not None
    )
    size = max(sizes, key=lambda each: sizes[each], default=0)
    rows = [at for at, value in enumerate(values) if value is not None and len(numbers[at]) == size]
    if not _MIN_NUMBERS <= size <= _MAX_NUMBERS or len(rows) < _MIN_ROWS:
        return []
    given = np.round(np.array([values[at] for at in rows], float), 6)
    counts = Counter(given.tolist())
    density = len(counts) / (np.ptp(given) + 1)
    if len(counts) < _MIN_DISTINCT * len(rows) or density > _MOST_DENSE:
        return []
    table = np.array([numbers[at] for at in rows], float)
    for results in _results(table):
        rounded = np.round(results, 6)
        shared = (Counter(rounded.tolist()) & counts).total()
        if shared >= _SAME_RESULTS * len(rows):
            fits = np.abs(rounded - given) < 1e-6
            if fits.mean() <= _OWN and not follow_from_numbers(table, given, _OWN):
                return [rows[at] for at in np.flatnonzero(~fits)]
    return []


def _results(table: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """Signed sums of two or more columns, and products of some with signed sums of others."""
    places = range(table.shape[1])
    for signs in itertools.product((1, 0, -1), repeat=len(places)):
        if sum(map(abs, signs)) >= 2:
            yield table @ np.array(signs, float)
    for count in range(2, len(places) + 1):
        for chosen in itertools.combinations(places, count):
            product = table[:, chosen].prod(axis=1)
            others = [at for at in places if at not in chosen]
            for signs in itertools.product((1, 0, -1), repeat=len(others)):
                yield product + table[:, others] @ np.array(signs, float)


def displaced_words(prompts: Sequence[str], answers: Sequence[str]) -> str:
    """In which order the answers would occur in the prompts; empty if they are in it, or in none.

    The next turns of a dialogue contain the answers of earlier turns rightly.

    Returns:
        "reversed", or by how many rows the answers are displaced, such as "10 rows later".
    """
    texts = [f" {' '.join(words_of(prompt))} " for prompt in prompts[:_MAX_ROWS]]
    keys = [f" {' '.join(words_of(answer))} " for answer in answers[:_MAX_ROWS]]
    names = list(dict.fromkeys(keys))
    if len(texts) < _MIN_ROWS or len(names) < _MIN_WORDS or any(len(key) < 4 for key in names):
        return ""
    words = [set(text.split()) for text in texts]
    within = np.array(
        [
            # A search of the text is slow for long ones.
            [own <= known and name in text for text, known in zip(texts, words, strict=True)]
            for name in names
            for own in [set(name.split())]
        ]
    )
    fits = within[[names.index(key) for key in keys]]  # [answer, prompt]
    usual = float(fits.mean())
    if fits.diagonal().mean() > _OWN or usual > 1 - _EXCESS:
        return ""
    least = max(_FITS, usual + _EXCESS)
    if np.fliplr(fits).diagonal().mean() >= least:
        return "in the reversed order"
    for lag in range(1, len(texts) - _MIN_ROWS):
        for offset, word in ((lag, "later"), (-lag, "earlier")):
            # The answer of row at belongs to the prompt of row at + offset.
            if fits.diagonal(offset).mean() >= least:
                later = zip(texts[lag:], texts, strict=False)
                return "" if are_related(list(later)) else f"{lag} rows {word}"
    return ""

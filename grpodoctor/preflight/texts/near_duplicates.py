"""Texts that say the same in slightly different words."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence

from grpodoctor.preflight.texts.affixes import Words, without_affixes

_MIN_NUMBERS = 3
"""Numbers that two texts must share; with fewer, templated problems agree by chance."""
_MAX_GROUP = 8
"""Texts with the same numbers; more of them share an instruction and not a problem."""
_MAX_FREQUENCY = 0.1
"""Share of texts with an answer that is frequent."""
_MIN_ALIKE = 0.8
"""Part of the different words of two texts that both have."""


def near_duplicates(
    texts: Sequence[Words], answers: Sequence[str | None], alike: float = _MIN_ALIKE
) -> dict[int, int]:
    """The index of an earlier text that says the same, for each text that has one.

    Two texts say the same if their words are equal, or if they have the same numbers in the same
    order, the same answer and enough of their words in common. Words that most texts begin or
    end with do not count.

    Args:
        texts: the words of each text.
        answers: the answer of each text; None or a frequent answer, such as yes, says nothing about
            two texts, so that only their words are compared.
        alike: part of the different words of two texts that both must have.
    """
    cores = without_affixes(texts)
    frequency = Counter(answers)
    most = max(_MAX_GROUP, _MAX_FREQUENCY * len(answers))
    first: dict[Words, int] = {}
    found: dict[int, int] = {}
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for at, core in enumerate(cores):
        if core in first:
            found[at] = first[core]
            continue
        first[core] = at
        numbers = tuple(word for word in core if word[0].isdigit())
        is_telling = answers[at] is not None and frequency[answers[at]] <= most
        if is_telling and len(numbers) >= _MIN_NUMBERS:
            groups[numbers, answers[at]].append(at)
    for group in groups.values():
        if len(group) <= _MAX_GROUP:
            found.update(_alike(group, cores, alike))
    return found


def _alike(group: Sequence[int], cores: Sequence[Words], share: float) -> Iterator[tuple[int, int]]:
    """Pairs of a text and an earlier one that has enough of its words."""
    for place, at in enumerate(group):
        words = set(cores[at])
        for other in group[:place]:
            others = set(cores[other])
            if len(words & others) >= share * len(words | others):
                yield at, other
                break

"""Groups of rows, such as a source, whose two labels are exchanged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from grpodoctor.preflight.texts.label_noise import word_label_scores
from grpodoctor.preflight.texts.normal_form import words_of

_MIN_ROWS = 40
_MAX_GROUPS = 8
_SKILL = 0.85
"""Share of the labels that words must tell, within the group and within the others."""
_INVERTED = 0.15
"""Share of a group's labels that a classifier of the others gets right, if they are exchanged."""
_LEAST = 0.2
"""Share of each label within a group: a column that is the label has one."""
_SHARED = 0.9
"""Share of the prompts that have a word of the instruction."""


def inverted_groups(
    prompts: Sequence[str], labels: Sequence[str], groups: Sequence[str]
) -> list[str]:
    """Groups in which the words of prompts tell the opposite of what they tell elsewhere.

    Args:
        prompts: the texts.
        labels: two different ones.
        groups: the group of each row.

    Returns:
        The smaller groups, if words tell the label everywhere and prompts have one instruction.
    """
    names, counts = sorted(set(labels)), Counter(groups)
    if len(names) != 2 or not 2 <= len(counts) <= _MAX_GROUPS:
        return []
    if min(counts.values()) < _MIN_ROWS:
        return []
    texts = [{word for word in words_of(text) if word.isalpha()} for text in prompts]
    target = np.array([names.index(label) for label in labels])
    member = np.array(groups)
    found = []
    for name in counts:
        inside = member == name
        least = min(np.bincount(target[chosen], minlength=2).min() / chosen.sum()
                    for chosen in (inside, ~inside))  # fmt: skip
        if (
            least < _LEAST
            or inside.sum() > len(prompts) / 2
            or _instruction(texts, inside) != _instruction(texts, ~inside)
        ):
            continue
        if word_label_scores(texts, target, ~inside, inside) <= _INVERTED and all(
            word_label_scores(texts, target, own, own) >= _SKILL for own in (inside, ~inside)
        ):
            found.append(name)
    return found


def _instruction(texts: Sequence[set[str]], chosen: NDArray[np.bool_]) -> set[str]:
    """The words that nearly all chosen texts have."""
    uses = Counter(
        word for text, is_chosen in zip(texts, chosen, strict=True) if is_chosen for word in text
    )
    return {word for word, count in uses.items() if count >= _SHARED * chosen.sum()}

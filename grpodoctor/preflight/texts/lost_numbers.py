"""Numbers that were removed from some texts of a template."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WORD = re.compile(r"[^\W\d_]+")
_HOLE = re.compile(r"(?<=\w) {2,}(?=\S)|\w (?=[.,;%)](?:\s|$))|\$\s*\$|\(\s*\)|\{\s*\}")
"""A place where something is missing: two blanks, or a blank before a sign."""
_MIN_ROWS = 5


def lost_numbers(texts: Sequence[str]) -> list[int]:
    """Texts with the words of other texts, fewer numbers than these, and a hole in their place."""
    groups: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for at, text in enumerate(texts):
        words = tuple(_WORD.findall(text.casefold()))
        groups[words].append((at, len(_NUMBER.findall(text))))
    found = []
    for group in groups.values():
        most = max(count for _, count in group)
        whole = [at for at, count in group if count == most]
        if any(_HOLE.search(texts[at]) for at in whole):
            continue
        found += [at for at, count in group if count < most and _HOLE.search(texts[at])]
    return sorted(found) if len(found) >= _MIN_ROWS else []

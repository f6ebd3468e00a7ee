"""A thirteenth set: a second natural draw, in two halves.

Kinds are drawn with the frequencies of `second_draw_kinds`, families uniformly among those that
have the part in question, sizes log-uniformly. The seed, the kinds and the names that count were
committed before attribution was run on any pair. A pair is drawn again if the fault does not fit
the family, if it, or one of two faults alone, makes no difference that matters (a mean |Δp| of at
most .01), or if a healthy pair has more than .006, which was measured without attribution. The
first half was run before attribution was changed, the second half after a change that had not seen
it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.probe.plants.draw import (
    Drawn,
    Kind,
    faulty,
    healthy,
    in_halves,
    shuffled_halves,
)
from tests.probe.plants.second_draw_kinds import HEALTHY, HEALTHY_FAMILIES, KINDS

SEED = 20261130
SIZES = {"single": 30, "double": 10, "healthy": 6}
ATTEMPTS = {
    "single/10": 3, "single/13": 1, "single/21": 1,
    "double/2": 1, "double/4": 1, "double/5": 1, "double/6": 4,
}  # fmt: skip
"""How often a pair was drawn again, by its group and number."""
ROUTED = ("deepseek_yarn",)
"""Families whose experts are recorded, and no other set lists."""


def pairs() -> Iterator[Drawn]:
    """All pairs, in the order in which they were drawn."""
    return in_halves("second-draw", SEED, SIZES, _pair, shuffled_halves)


def _pair(kind: str, number: int) -> Drawn:
    attempt = ATTEMPTS.get(f"{kind}/{number}", 0)
    generator = random.Random(f"{SEED}/{kind}/{number}/{attempt}")
    if kind == "healthy":
        return healthy(generator, HEALTHY, lambda _: generator.choice(HEALTHY_FAMILIES))
    while True:
        kinds = [_kind(generator) for _ in range(1 + (kind == "double"))]
        families = sorted(set.intersection(*(set(each.families) for each in kinds)))
        if families and _can_be_together(kinds):
            return faulty(generator, generator.choice(families), kinds)


def _kind(generator: random.Random) -> Kind:
    return generator.choices(KINDS, [each.weight for each in KINDS])[0]


def _can_be_together(kinds: list[Kind]) -> bool:
    """Whether the kinds are of one side, with other causes and with options that agree."""
    first, last = kinds[0], kinds[-1]
    if first is last:
        return len(kinds) == 1
    are_distinct = not set(first.names) & set(last.names)
    return are_distinct and first.side == last.side and not (first.options and last.options)

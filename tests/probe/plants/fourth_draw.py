"""A fifteenth set: a fourth natural draw, in two halves.

The groups of kinds have the weights of `second_draw`: 16 single faults, 6 doubles and 4 healthy
pairs. Singles are a systematic sample: at equal steps of the summed weights, from a random start,
so that each group has its share. (A first draw by independent choices had six rotations and no
prompt among its singles; it was replaced before any run.) Doubles are drawn independently. Of two
neighbors in the sample, a coin decides which belongs to half A. A quarter of the families are ones
that no earlier set has, where the fault fits one. The seed, the kinds and the names that count were
committed before attribution was run on any pair. A pair is drawn again if the fault does not fit
the family, if it, or one of two faults alone, makes no difference that matters (a mean |Δp| of at
most .01), or if a healthy pair has more than .006, which was measured without attribution; a single
fault keeps its group. The older checkpoint is given in every second pair with old weights.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.probe.plants.draw import (
    Drawn,
    Kind,
    can_be_together,
    every_second_older,
    faulty,
    healthy,
    in_halves,
    tossed_halves,
)
from tests.probe.plants.fourth_draw_faults import NEED_EAGER
from tests.probe.plants.fourth_draw_kinds import (
    ADAPTED_FAMILIES,
    GROUPS,
    HEALTHY,
    HEALTHY_FAMILIES,
    KINDS,
    NEW,
)
from tests.probe.plants.third_draw_faults import NEED_EAGER as WRAPPING

SEED = 20261202
SIZES = {"single": 16, "double": 6, "healthy": 4}
ATTEMPTS: dict[str, int] = {}
"""How often a pair was drawn again, by its group and number; no pair had to be."""
ROUTED = ("aria", "axk2", "inkling2")
"""Families whose experts are recorded, and no other set lists."""


def pairs() -> Iterator[Drawn]:
    """All pairs, in the order in which they were drawn."""
    return every_second_older(in_halves("fourth-draw", SEED, SIZES, _pair, tossed_halves))


def _sampled(number: int, attempt: int, generator: random.Random) -> Kind:
    """The kind of a single fault; when drawn again, one of the same group."""
    step = sum(each.weight for each in KINDS) / SIZES["single"]
    at, index = (random.Random(f"{SEED}/start").random() + number) * step, 0
    while at >= KINDS[index].weight:
        at -= KINDS[index].weight
        index += 1
    if not attempt:
        return KINDS[index]
    starts = [0]
    for _, kinds in GROUPS.values():
        starts.append(starts[-1] + len(kinds))
    group = next(n for n, start in enumerate(starts[1:]) if index < start)
    own = KINDS[starts[group] : starts[group + 1]]
    return generator.choices(own, [each.weight for each in own])[0]


def _pair(kind: str, number: int) -> Drawn:
    attempt = ATTEMPTS.get(f"{kind}/{number}", 0)
    generator = random.Random(f"{SEED}/{kind}/{number}/{attempt}")
    if kind == "healthy":
        return healthy(
            generator,
            HEALTHY,
            lambda options: _family(
                generator, sorted(ADAPTED_FAMILIES if "adapter" in options else HEALTHY_FAMILIES)
            ),
        )
    while True:
        weights = [each.weight for each in KINDS]
        kinds = generator.choices(KINDS, weights, k=2)
        if kind == "single":
            kinds = [_sampled(number, attempt, generator)]
        families = sorted(set.intersection(*(set(each.families) for each in kinds)))
        if families and can_be_together(kinds, NEED_EAGER | WRAPPING | {"kv"}):
            return faulty(generator, _family(generator, families), kinds)


def _family(generator: random.Random, families: list[str]) -> str:
    new = [each for each in families if each in NEW]
    return generator.choice(new if new and generator.random() < 0.25 else families)

"""A fourteenth set: a third natural draw, in two halves.

It is drawn as `second_draw` is, with the same weights of groups and other faults in them
(`third_draw_kinds`): 24 single faults, 12 doubles and 6 healthy pairs. The seed, the kinds and the
names that count were committed before attribution was run on any pair. A pair is drawn again if
the fault does not fit the family, if it, or one of two faults alone, makes no difference that
matters (a mean |Δp| of at most .01), or if a healthy pair has more than .006, which was measured
without attribution. The older checkpoint is given in every second pair with old weights.
Both halves were run with the same code of attribution.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.probe.plants import third_draw_weights  # noqa: F401  # registers its faults
from tests.probe.plants.draw import (
    Drawn,
    can_be_together,
    every_second_older,
    faulty,
    healthy,
    in_halves,
    shuffled_halves,
)
from tests.probe.plants.third_draw_faults import NEED_EAGER
from tests.probe.plants.third_draw_kinds import ADAPTED_FAMILIES, HEALTHY, HEALTHY_FAMILIES, KINDS

SEED = 20261201
SIZES = {"single": 24, "double": 12, "healthy": 6}
ATTEMPTS = {"single/12": 1, "single/14": 1, "double/0": 1, "double/5": 1, "double/6": 1}
"""How often a pair was drawn again, by its group and number."""


def pairs() -> Iterator[Drawn]:
    """All pairs, in the order in which they were drawn."""
    return every_second_older(in_halves("third-draw", SEED, SIZES, _pair, shuffled_halves))


def _pair(kind: str, number: int) -> Drawn:
    attempt = ATTEMPTS.get(f"{kind}/{number}", 0)
    generator = random.Random(f"{SEED}/{kind}/{number}/{attempt}")
    if kind == "healthy":
        return healthy(
            generator,
            HEALTHY,
            lambda options: generator.choice(
                ADAPTED_FAMILIES if "adapter" in options else HEALTHY_FAMILIES
            ),
        )
    while True:
        weights = [each.weight for each in KINDS]
        kinds = generator.choices(KINDS, weights, k=1 + (kind == "double"))
        families = sorted(set.intersection(*(set(each.families) for each in kinds)))
        if families and can_be_together(kinds, NEED_EAGER):
            return faulty(generator, generator.choice(families), kinds)

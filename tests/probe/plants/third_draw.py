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
from dataclasses import replace

from tests.probe.plants import third_draw_weights  # noqa: F401  # registers its faults
from tests.probe.plants.second_draw import Drawn, _faulty, _log_uniform
from tests.probe.plants.third_draw_faults import NEED_EAGER
from tests.probe.plants.third_draw_kinds import (
    ADAPTED_FAMILIES,
    HEALTHY,
    HEALTHY_FAMILIES,
    KINDS,
    Kind,
)

SEED = 20261201
SIZES = {"single": 24, "double": 12, "healthy": 6}
ATTEMPTS = {"single/12": 1, "single/14": 1, "double/0": 1, "double/5": 1, "double/6": 1}
"""How often a pair was drawn again, by its group and number."""


def pairs() -> Iterator[Drawn]:
    """All pairs, in the order in which they were drawn."""
    old = 0
    for kind, count in SIZES.items():
        order = list(range(count))
        random.Random(f"{SEED}/halves/{kind}").shuffle(order)
        first = set(order[: count // 2])
        ending = "" if kind == "single" else f"-{kind}"
        for number in range(count):
            half = "a" if number in first else "b"
            pair, is_old = drawn(kind, number, ATTEMPTS.get(f"{kind}/{number}", 0))
            old += is_old
            yield replace(pair, group=f"third-draw-{half}{ending}", stale=is_old and old % 2 == 1)


def drawn(kind: str, number: int, attempt: int) -> tuple[Drawn, bool]:
    """A pair, and whether it has old weights."""
    generator = random.Random(f"{SEED}/{kind}/{number}/{attempt}")
    if kind == "healthy":
        return _healthy(generator), False
    while True:
        weights = [each.weight for each in KINDS]
        kinds = generator.choices(KINDS, weights, k=1 + (kind == "double"))
        families = sorted(set.intersection(*(set(each.families) for each in kinds)))
        if families and _can_be_together(kinds):
            pair = _faulty(generator, generator.choice(families), kinds, "")
            return pair, any(each.is_old for each in kinds)


def _can_be_together(kinds: list[Kind]) -> bool:
    """Whether the kinds are of one side, with other causes, and do not undo each other."""
    if len(kinds) == 1:
        return True
    first, last = kinds
    names = [each.fault.partition(":")[0] for each in kinds]
    are_distinct = names[0] != names[1] and not set(first.names) & set(last.names)
    is_wrapped_once = not set(names) <= NEED_EAGER
    fit = first.side == last.side and not (first.options and last.options)
    return are_distinct and is_wrapped_once and fit


def _healthy(generator: random.Random) -> Drawn:
    faults, options, others = generator.choice(HEALTHY)
    families = ADAPTED_FAMILIES if "adapter" in options else HEALTHY_FAMILIES
    temperature = round(_log_uniform(generator, 0.6, 1.2), 2)
    sampling = {"temperature": temperature} if generator.random() < 0.5 else {}
    return Drawn(
        generator.choice(families), faults, (), "", options=options, others=others,
        sampling=sampling,
    )  # fmt: skip

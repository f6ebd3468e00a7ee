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
from dataclasses import replace

from tests.probe.plants.fourth_draw_faults import NEED_EAGER
from tests.probe.plants.fourth_draw_kinds import (
    ADAPTED_FAMILIES,
    GROUPS,
    HEALTHY,
    HEALTHY_FAMILIES,
    KINDS,
    NEW,
    Kind,
)
from tests.probe.plants.second_draw import Drawn, _faulty, _log_uniform
from tests.probe.plants.third_draw_faults import NEED_EAGER as WRAPPING

SEED = 20261202
SIZES = {"single": 16, "double": 6, "healthy": 4}
ATTEMPTS: dict[str, int] = {}
"""How often a pair was drawn again, by its group and number; no pair had to be."""
ROUTED = ("aria", "axk2", "inkling2")
"""Families whose experts are recorded, and no other set lists."""


def pairs() -> Iterator[Drawn]:
    """All pairs, in the order in which they were drawn."""
    old = 0
    for kind, count in SIZES.items():
        coins = random.Random(f"{SEED}/halves/{kind}")
        order = [("a", "b") if coins.random() < 0.5 else ("b", "a") for _ in range(count // 2)]
        ending = "" if kind == "single" else f"-{kind}"
        for number in range(count):
            half = order[number // 2][number % 2]
            pair, is_old = drawn(kind, number, ATTEMPTS.get(f"{kind}/{number}", 0))
            old += is_old
            yield replace(pair, group=f"fourth-draw-{half}{ending}", stale=is_old and old % 2 == 1)


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


def drawn(kind: str, number: int, attempt: int) -> tuple[Drawn, bool]:
    """A pair, and whether it has old weights."""
    generator = random.Random(f"{SEED}/{kind}/{number}/{attempt}")
    if kind == "healthy":
        return _healthy(generator), False
    while True:
        weights = [each.weight for each in KINDS]
        kinds = generator.choices(KINDS, weights, k=2)
        if kind == "single":
            kinds = [_sampled(number, attempt, generator)]
        families = sorted(set.intersection(*(set(each.families) for each in kinds)))
        if families and _can_be_together(kinds):
            pair = _faulty(generator, _family(generator, families), kinds, "")
            return pair, any(each.is_old for each in kinds)


def _family(generator: random.Random, families: list[str]) -> str:
    new = [each for each in families if each in NEW]
    return generator.choice(new if new and generator.random() < 0.25 else families)


def _can_be_together(kinds: list[Kind]) -> bool:
    """Whether the kinds are of one side, with other causes, and do not undo each other."""
    if len(kinds) == 1:
        return True
    first, last = kinds
    names = [each.fault.partition(":")[0] for each in kinds]
    are_distinct = names[0] != names[1] and not set(first.names) & set(last.names)
    is_wrapped_once = not set(names) <= NEED_EAGER | WRAPPING | {"kv"}
    fit = first.side == last.side and not (first.options and last.options)
    return are_distinct and is_wrapped_once and fit


def _healthy(generator: random.Random) -> Drawn:
    faults, options, others = generator.choice(HEALTHY)
    families = ADAPTED_FAMILIES if "adapter" in options else HEALTHY_FAMILIES
    temperature = round(_log_uniform(generator, 0.6, 1.2), 2)
    sampling = {"temperature": temperature} if generator.random() < 0.5 else {}
    return Drawn(
        _family(generator, sorted(families)), faults, (), "", options=options, others=others,
        sampling=sampling,
    )  # fmt: skip

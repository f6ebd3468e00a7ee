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
from dataclasses import dataclass, field
from typing import Any

from tests.probe.plants.second_draw_kinds import HEALTHY, HEALTHY_FAMILIES, KINDS, Kind, Names

SEED = 20261130
SINGLES, DOUBLES, HEALTHY_PAIRS = 30, 10, 6
ATTEMPTS = {
    "single/10": 3, "single/13": 1, "single/21": 1,
    "double/2": 1, "double/4": 1, "double/5": 1, "double/6": 4,
}  # fmt: skip
"""How often a pair was drawn again, by its group and number."""
ROUTED = ("deepseek_yarn",)
"""Families whose experts are recorded, and no other set lists."""


@dataclass(frozen=True)
class Drawn:
    """A pair that was drawn; the fields are those of `catalogue.Plant`."""

    family: str
    faults: str
    causes: tuple[Names, ...]
    group: str
    side: str = "sampler"
    stale: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=dict)


def pairs() -> Iterator[Drawn]:
    """All pairs, in the order in which they were drawn."""
    for kind, count in (("single", SINGLES), ("double", DOUBLES), ("healthy", HEALTHY_PAIRS)):
        order = list(range(count))
        random.Random(f"{SEED}/halves/{kind}").shuffle(order)
        first = set(order[: count // 2])
        ending = "" if kind == "single" else f"-{kind}"
        for number in range(count):
            group = f"second-draw-{'a' if number in first else 'b'}{ending}"
            yield _pair(kind, number, group)


def _pair(kind: str, number: int, group: str) -> Drawn:
    attempt = ATTEMPTS.get(f"{kind}/{number}", 0)
    generator = random.Random(f"{SEED}/{kind}/{number}/{attempt}")
    if kind == "healthy":
        return _healthy(generator, group)
    while True:
        kinds = [_kind(generator) for _ in range(1 + (kind == "double"))]
        families = sorted(set.intersection(*(set(each.families) for each in kinds)))
        if families and _can_be_together(kinds):
            return _faulty(generator, generator.choice(families), kinds, group)


def _kind(generator: random.Random) -> Kind:
    return generator.choices(KINDS, [each.weight for each in KINDS])[0]


def _can_be_together(kinds: list[Kind]) -> bool:
    """Whether the kinds are of one side, with other causes and with options that agree."""
    first, last = kinds[0], kinds[-1]
    if first is last:
        return len(kinds) == 1
    are_distinct = not set(first.names) & set(last.names)
    return are_distinct and first.side == last.side and not (first.options and last.options)


def _faulty(generator: random.Random, family: str, kinds: list[Kind], group: str) -> Drawn:
    options = {key: value for each in kinds for key, value in each.options.items()}
    others = {key: value for each in kinds for key, value in each.others.items()}
    faults = "+".join(_sized(generator, each) for each in kinds if each.fault)
    sampling: dict[str, Any] = {}
    if any("temperature" in each.sampling for each in kinds):
        sampling = {"temperature": round(_log_uniform(generator, 0.5, 0.85), 2)}
    is_given = any(each.is_old for each in kinds) and generator.random() < 0.5
    return Drawn(
        family, faults, tuple(each.names for each in kinds), group, kinds[0].side, is_given,
        options, others, sampling,
    )  # fmt: skip


def _log_uniform(generator: random.Random, least: float, most: float) -> float:
    return float(least * (most / least) ** generator.random())


def _sized(generator: random.Random, kind: Kind) -> str:
    if kind.size is None:
        return kind.fault
    size = round(_log_uniform(generator, *kind.size), kind.digits)
    if kind.size_of.startswith("1"):
        size = round(1 - size if "-" in kind.size_of else 1 + size, kind.digits)
    return kind.fault.format(x=f"{size:g}")


def _healthy(generator: random.Random, group: str) -> Drawn:
    faults, options, others = generator.choice(HEALTHY)
    sampling = {"temperature": round(_log_uniform(generator, 0.6, 1.2), 2)}
    sampling = sampling if generator.random() < 0.5 else {}
    return Drawn(
        generator.choice(HEALTHY_FAMILIES), faults, (), group,
        options=options, others=others, sampling=sampling,
    )  # fmt: skip

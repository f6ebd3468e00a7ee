"""What the natural draws have in common: kinds of faults, pairs, sizes and halves.

A draw is a module with a generator `pairs`. It adds its seed, its kinds and its numbers of pairs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Names = tuple[str, ...]
ADAPTER = {"adapter": "ADAPTER"}
"""Options of both sides of a pair with an adapter."""
Healthy = tuple[tuple[str, dict[str, Any], dict[str, Any]], ...]
"""Faults that are none, and options of either engine, of kinds of healthy pairs."""
Groups = Mapping[str, "tuple[float, tuple[Kind, ...]]"]
"""The weight of each group and its kinds, whose weights here are shares of the group's."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault."""

    fault: str
    """With `{x}` for its size; empty if options alone are the fault."""
    weight: float
    families: tuple[str, ...]
    names: Names
    """Causes that a user would act on correctly."""
    size: tuple[float, float] | None = None
    """Bounds of the size, which is drawn log-uniformly."""
    digits: int = 2
    """Of the size, after the point."""
    size_of: str = "{x}"
    """What is written for the size: `1-{x}` for what a top-p leaves out, `1+{x}` for a penalty."""
    side: str = "sampler"
    sampling: dict[str, Any] = field(default_factory=dict)
    """`temperature: None` stands for one that is drawn."""
    options: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    is_old: bool = False
    """Whether weights are old; in half of these the older checkpoint is given."""


@dataclass(frozen=True)
class Drawn:
    """A pair that was drawn; the fields are those of `catalogue.Plant`."""

    family: str
    faults: str
    causes: tuple[Names, ...]
    group: str = ""
    side: str = "sampler"
    stale: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=dict)

    @property
    def is_old(self) -> bool:
        """Whether an engine has old weights."""
        return "STALE" in f"{self.faults} {self.options}"


def split(names: str) -> tuple[str, ...]:
    """Families, which are written with spaces between them."""
    return tuple(names.split())


def fault(fault: str, weight: float, families: tuple[str, ...], *names: str, **more: Any) -> Kind:
    """A kind of fault with its accepted names."""
    return Kind(fault, weight, families, names, **more)


def stale(fault: str, weight: float, families: tuple[str, ...], *names: str, **more: Any) -> Kind:
    """A kind of fault that keeps old weights."""
    return Kind(fault, weight, families, names, is_old=True, **more)


def weighted(groups: Groups) -> tuple[Kind, ...]:
    """The kinds of all groups, whose weights add up to those of the groups."""
    return tuple(
        replace(kind, weight=weight * kind.weight / sum(each.weight for each in kinds))
        for weight, kinds in groups.values()
        for kind in kinds
    )


def log_uniform(generator: random.Random, least: float, most: float) -> float:
    """A number between two others, whose logarithm is uniform."""
    return float(least * (most / least) ** generator.random())


def _sized(generator: random.Random, kind: Kind) -> str:
    if kind.size is None:
        return kind.fault
    size = round(log_uniform(generator, *kind.size), kind.digits)
    if kind.size_of.startswith("1"):
        size = round(1 - size if "-" in kind.size_of else 1 + size, kind.digits)
    return kind.fault.format(x=f"{size:g}")


def faulty(generator: random.Random, family: str, kinds: Sequence[Kind]) -> Drawn:
    """A pair of a family with faults of some kinds; the older checkpoint is given by a coin."""
    options = {key: value for each in kinds for key, value in each.options.items()}
    others = {key: value for each in kinds for key, value in each.others.items()}
    faults = "+".join(_sized(generator, each) for each in kinds if each.fault)
    sampling: dict[str, Any] = {}
    if any("temperature" in each.sampling for each in kinds):
        sampling = {"temperature": round(log_uniform(generator, 0.5, 0.85), 2)}
    is_given = any(each.is_old for each in kinds) and generator.random() < 0.5
    return Drawn(
        family, faults, tuple(each.names for each in kinds), "", kinds[0].side, is_given,
        options, others, sampling,
    )  # fmt: skip


def healthy(
    generator: random.Random, kinds: Healthy, family: Callable[[Mapping[str, Any]], str]
) -> Drawn:
    """A pair without a fault; `family` draws a family that fits the options."""
    faults, options, others = generator.choice(kinds)
    temperature = round(log_uniform(generator, 0.6, 1.2), 2)
    sampling = {"temperature": temperature} if generator.random() < 0.5 else {}
    return Drawn(
        family(options), faults, (), options=options, others=others, sampling=sampling
    )  # fmt: skip


def can_be_together(kinds: Sequence[Kind], wrapping: set[str]) -> bool:
    """Whether kinds are of one side, with other causes, and do not undo each other.

    Args:
        kinds: one or two.
        wrapping: faults that wrap the attention function, of which an engine can have one.
    """
    if len(kinds) == 1:
        return True
    first, last = kinds
    names = [each.fault.partition(":")[0] for each in kinds]
    are_distinct = names[0] != names[1] and not set(first.names) & set(last.names)
    fit = first.side == last.side and not (first.options and last.options)
    return are_distinct and not set(names) <= wrapping and fit


def shuffled_halves(seed: str, count: int) -> list[str]:
    """A random half of the pairs is in half a."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    first = set(order[: count // 2])
    return ["a" if number in first else "b" for number in range(count)]


def tossed_halves(seed: str, count: int) -> list[str]:
    """Of two neighbors, a coin decides which is in half a."""
    coins = random.Random(seed)
    return [
        half
        for _ in range(count // 2)
        for half in (("a", "b") if coins.random() < 0.5 else ("b", "a"))
    ]


def in_halves(
    name: str,
    seed: int,
    sizes: Mapping[str, int],
    draw: Callable[[str, int], Drawn],
    halves: Callable[[str, int], list[str]],
) -> Iterator[Drawn]:
    """The pairs of a draw with the groups of their halves.

    Args:
        name: of the draw, with which the names of groups begin.
        seed: of the draw.
        sizes: the number of pairs with a `single` fault, a `double` and of `healthy` ones.
        draw: gives the pair of a kind of pair and a number.
        halves: gives the half of each pair from a seed and their number.
    """
    for kind, count in sizes.items():
        ending = "" if kind == "single" else f"-{kind}"
        for number, half in enumerate(halves(f"{seed}/halves/{kind}", count)):
            yield replace(draw(kind, number), group=f"{name}-{half}{ending}")


def every_second_older(pairs: Iterable[Drawn]) -> Iterator[Drawn]:
    """Gives the older checkpoint to every second pair with old weights, the first among them."""
    old = 0
    for each in pairs:
        old += each.is_old
        yield replace(each, stale=each.is_old and old % 2 == 1)

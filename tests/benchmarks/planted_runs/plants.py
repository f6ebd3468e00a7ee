"""What a planted cause consists of, and the helpers that causes are written with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from tests.benchmarks.planted_runs.parts import Sizes
from tests.benchmarks.planted_runs.simulation import Change, Simulation

Plan = Callable[[Random, Simulation], Change | None]
"""Changes the start of a run, and returns what changes it later."""
Prepare = Callable[[Random, Sizes], None]

FALL = ("REW002", "REW014")
"""The outcome fell: accepted where the log shows the fall and not its reason."""


@dataclass(frozen=True)
class Plant:
    """A cause, or a healthy run that looks odd."""

    name: str
    codes: tuple[str, ...]
    """Rules that a practitioner accepts as its name; empty for a healthy run."""
    evidence: tuple[frozenset[str], ...]
    """Sets of quantities; a log with all of one set shows the cause."""
    plan: Plan
    prepare: Prepare | None = None
    logged: frozenset[str] = frozenset()
    """Optional quantities that every log of the plant has, as far as its format can."""
    optional: frozenset[str] = frozenset()
    """Quantities of special runs, such as `tools`."""
    steps: tuple[int, int] = (50, 400)
    without: frozenset[str] = frozenset()
    """Formats that drop the values which show the cause."""


CAUSES: dict[str, Plant] = {}
HEALTHY: dict[str, Plant] = {}


def cause(
    name: str,
    codes: Iterable[str],
    evidence: Iterable[str] = ("reward",),
    *,
    prepare: Prepare | None = None,
    logged: str = "",
    optional: str = "",
    steps: tuple[int, int] = (50, 400),
    without: str = "",
) -> Callable[[Plan], Plan]:
    """Register a planted cause.

    Args:
        name: of the cause.
        codes: rules that name it.
        evidence: names of quantities, separated by blanks; each text is a sufficient set.
        prepare: changes the sizes of the run.
        logged: optional quantities that are always measured: `kl`, `heldout`, `mismatch`.
        optional: quantities of special runs.
        steps: fewest and most steps.
        without: formats that drop the values which show the cause.
    """

    def register(plan: Plan) -> Plan:
        sets = tuple(frozenset(text.split()) for text in evidence)
        extras = frozenset(logged.split()), frozenset(optional.split())
        dropped = frozenset(without.split())
        CAUSES[name] = Plant(name, tuple(codes), sets, plan, prepare, *extras, steps, dropped)
        return plan

    return register


def healthy(
    name: str,
    *,
    prepare: Prepare | None = None,
    logged: str = "",
    optional: str = "",
    steps: tuple[int, int] = (50, 400),
) -> Callable[[Plan], Plan]:
    """Register a healthy run that looks odd."""

    def register(plan: Plan) -> Plan:
        extras = frozenset(logged.split()), frozenset(optional.split())
        HEALTHY[name] = Plant(name, (), (frozenset({"reward"}),), plan, prepare, *extras, steps)
        return plan

    return register


def onset(random: Random, run: Simulation, first: float = 0.3, last: float = 0.6) -> int:
    """A step in the middle of a run."""
    return round(random.uniform(first, last) * run.sizes.steps)


def apply(run: Simulation, changes: dict[str, object]) -> None:
    """Set attributes: `rewards__rejects` is that of the part `rewards`."""
    for name, value in changes.items():
        part, _, attribute = name.partition("__")
        assert hasattr(getattr(run, part), attribute), name
        setattr(getattr(run, part), attribute, value)


def at(step: int, **changes: object) -> Change:
    """Change attributes once, before a step."""

    def change(run: Simulation, number: int) -> None:
        if number == step:
            apply(run, changes)

    return change


def ramp(name: str, first: float, last: float, begin: int, end: int) -> Change:
    """Change an attribute evenly between two steps."""

    def change(run: Simulation, number: int) -> None:
        if begin <= number <= end:
            share = (number - begin) / max(end - begin, 1)
            apply(run, {name: first + (last - first) * share})

    return change


def each(first: int, action: Callable[[Simulation], None]) -> Change:
    """Act before every step from one on."""

    def change(run: Simulation, number: int) -> None:
        if number >= first:
            action(run)

    return change


def together(*changes: Change | None) -> Change:
    """Several changes."""

    def change(run: Simulation, number: int) -> None:
        for one in changes:
            if one is not None:
                one(run, number)

    return change

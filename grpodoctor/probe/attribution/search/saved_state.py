"""A state of an investigation to which it can return."""

from __future__ import annotations

from dataclasses import dataclass

from grpodoctor.probe.attribution.rounding import Rounding
from grpodoctor.probe.attribution.search.selection import Step
from grpodoctor.probe.attribution.search.subsets import Subset
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.results.results import NamedCause


@dataclass(frozen=True, slots=True)
class SavedState:
    """The causes accepted so far, and what they leave."""

    named: tuple[NamedCause, ...]
    taken: frozenset[str]
    imitated: frozenset[str]
    steps: tuple[Step, ...]
    left: float
    variant: Variant
    limit: Subset | None
    checked: int
    noise: float | None
    rounding: Rounding | None

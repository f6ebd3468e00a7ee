"""What a remedy is."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from grpodoctor.vocabulary.knobs import Setting

Applicability = Literal["safe", "unsafe", "suggest"]
"""`safe`: reversible, bounded, allow-listed, and the objective stays the same: which rewards count,
how they are weighed, and at which temperature the policy is sampled. Step size, trust region and
the correctness of the gradient's estimate are means to that end, not the end. `unsafe`: changes
what is optimized. `suggest`: needs a restart or a person."""

Slot = Literal[
    "advantage",
    "denominator",
    "trust-region",
    "engine-correction",
    "old-policy",
    "weight-sync",
    "zero-signal",
    "truncation",
    "exploration",
    "expert-routing",
    "kl",
    "step-size",
]
"""What a remedy occupies. Two remedies in one slot overlap and are never stacked."""


@dataclass(frozen=True, slots=True)
class Watch:
    """A metric by which a remedy is judged."""

    metric: str
    direction: Literal["down", "up", "toward-baseline"]
    """Which way it must move (target) or must not move far (guard)."""
    tolerance: float = 0.0
    """Guard only: how far, as a share of the level before treatment, it may move that way."""
    slack: float = 0.0
    """Guard only: how far it may move in any case, for metrics whose level may be close to zero."""


@dataclass(frozen=True)
class Remedy(ABC):
    """Base of all remedies: what it changes, what it occupies, and by what it is judged.

    The docstring of each remedy is its page, with the headings *What it does*, *What it costs*,
    *What it overlaps*, *How it is judged* and *References*.
    """

    id: ClassVar[str]
    title: ClassVar[str]
    applicability: ClassVar[Applicability]
    in_flight: ClassVar[bool]
    """Whether a live run can take it between two steps."""
    slots: ClassVar[tuple[Slot, ...]]
    target: ClassVar[Watch]
    also: ClassVar[tuple[Watch, ...]] = ()
    """Further targets, for runs in which the first is not read or is already where it should be:
    one of them moving is enough."""
    guards: ClassVar[tuple[Watch, ...]] = ()
    paper: ClassVar[str]
    how: ClassVar[str] = ""
    """What a person does, for a remedy that no knob of a live run can stand for."""
    restart_with: ClassVar[Mapping[str, Setting]] = {}
    """Settings beyond the knobs that belong to `how`, for frameworks that have them: names of
    `remedies.spelling.ENGINE_SETTINGS`."""

    @abstractmethod
    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """The knobs to set, given those in force.

        Only knobs whose setting is known are changed, so that undoing can set them back to what
        they were. Empty if it is already in place, cannot help, or a knob it needs is unknown.
        """

    @property
    def targets(self) -> tuple[Watch, ...]:
        """All metrics of which one must move, the telling one first."""
        return (self.target, *self.also)

    @classmethod
    def manual(cls) -> str:
        """The page."""
        return inspect.getdoc(cls) or ""


def number(knobs: Mapping[str, Setting], name: str) -> float | None:
    """The number that a knob is set to; None if it is unknown or is none."""
    setting = knobs.get(name)
    if isinstance(setting, bool) or not isinstance(setting, int | float):
        return None
    return float(setting)


def round_figure(value: float) -> float:
    """`value` to two significant digits: a setting that a person can read back."""
    return float(f"{value:.2g}")

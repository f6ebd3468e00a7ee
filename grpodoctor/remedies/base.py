"""What a remedy is."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from grpodoctor.vocabulary.knobs import Setting

Applicability = Literal["safe", "unsafe", "suggest"]
"""`safe`: reversible, bounded, allow-listed, the objective stays the same. `unsafe`: changes what
is optimised. `suggest`: needs a restart or a person."""

Slot = Literal[
    "advantage",
    "denominator",
    "trust-region",
    "engine-correction",
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


@dataclass(frozen=True)
class Remedy(ABC):
    """Base of all remedies. The docstring is the page: what it does, what it costs, its source."""

    id: ClassVar[str]
    title: ClassVar[str]
    applicability: ClassVar[Applicability]
    in_flight: ClassVar[bool]
    """Whether a live run can take it between two steps."""
    slots: ClassVar[tuple[Slot, ...]]
    target: ClassVar[Watch]
    guards: ClassVar[tuple[Watch, ...]] = ()
    paper: ClassVar[str]

    @abstractmethod
    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """The knobs to set, given those in force; empty if it is already in place or cannot help.

        Undoing sets the changed knobs back to what they were.
        """

    @classmethod
    def manual(cls) -> str:
        """The page."""
        return inspect.getdoc(cls) or ""

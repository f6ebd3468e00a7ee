"""The base class of all remedies."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from grpodoctor.runs.crash import CrashKind
from grpodoctor.vocabulary.knobs import Setting

Readings = Mapping[str, float]
"""The recent level of each metric that a run logs."""

Applicability = Literal["safe", "unsafe", "suggest"]
"""`safe`: reversible, bounded, allow-listed, and the objective stays the same. The objective is
which rewards count, how they are weighted, and the temperature at which the policy is sampled. Step
size, trust region and the correctness of the gradient estimate are means to it. `unsafe`: changes
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
    "precision",
    "reward",
]
"""What a remedy changes. Two remedies with the same slot overlap and are never combined."""


ONSET = "the onset of the finding"
"""Reports replace it in instructions by the step of their finding."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """A metric by which a remedy is judged, as a target or as a guard."""

    metric: str
    direction: Literal["down", "up", "toward-baseline"]
    """The direction in which a target must move, or in which a guard must not move far."""
    tolerance: float = 0.0
    """Guard only: allowed movement, as a share of the level before treatment."""
    slack: float = 0.0
    """Guard only: movement that is always allowed, for metrics whose level may be near zero."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A reading or a knob that must be above a bound, or the remedy has nothing to act on."""

    names: tuple[str, ...]
    """Metrics or knobs; one of them above the bound is enough."""
    otherwise: str
    """Why the remedy cannot help if all of them are known and none is above the bound."""
    above: float = 0.0
    wanted: str = ""
    """The condition in words if all names are unknown; by default `bound`."""

    @property
    def bound(self) -> str:
        """The requirement in words."""
        return f"{' or '.join(self.names)} is above {self.above:g}"

    def known(self, knobs: Mapping[str, Setting], readings: Readings) -> dict[str, float]:
        """The values of the names that are known."""
        values = {name: number(knobs, name) for name in self.names}
        values |= {name: readings[name] for name in self.names if name in readings}
        return {name: value for name, value in values.items() if value is not None}

    def met_by(self, known: Mapping[str, float]) -> tuple[str, float] | None:
        """The first name above the bound, with its value; None if there is none."""
        return next(((name, known[name]) for name in known if known[name] > self.above), None)

    def is_unmet(self, known: Mapping[str, float]) -> bool:
        """Whether all names are known and none is above the bound."""
        return len(known) == len(self.names) and self.met_by(known) is None


class Remedy:
    """Base class of all remedies: what it changes, its slots and its criteria.

    The docstring of a remedy is its page, with the headings *What it does*, *When it applies*,
    *What it costs*, *What it overlaps*, *How it is judged* and *References*.
    """

    id: ClassVar[str]
    former_ids: ClassVar[tuple[str, ...]] = ()
    """Ids from earlier versions, which users may still type."""
    title: ClassVar[str]
    applicability: ClassVar[Applicability]
    in_flight: ClassVar[bool]
    """Whether a live run can apply it between two steps."""
    slots: ClassVar[tuple[Slot, ...]]
    target: ClassVar[Criterion]
    more_targets: ClassVar[tuple[Criterion, ...]] = ()
    """Further targets, for runs in which the first is not logged or already at its goal; one
    target that moves is enough."""
    guards: ClassVar[tuple[Criterion, ...]] = ()
    paper: ClassVar[str]
    how: ClassVar[str] = ""
    """Instructions for a person, for a remedy that no knob of a live run covers."""
    command: ClassVar[str] = ""
    """The command that makes the check or the change, for a remedy without settings; `MODEL` is the
    run's model where it is known."""
    restart_with: ClassVar[Mapping[str, Setting]] = {}
    """Settings beyond the knobs that belong to `how`, for frameworks that have them: names in
    `frameworks.settings.ENGINE_SETTINGS`."""
    settings: ClassVar[Mapping[str, Setting]] = {}
    """The knobs that it sets, for a remedy that always sets the same values."""
    requires: ClassVar[Mapping[str, Setting]] = {}
    """Knobs without which `settings` have no effect."""
    acts_on: ClassVar[Requirement | None] = None
    """What the remedy acts on. Without it, the remedy is not offered; where it is unknown, the
    report states the condition."""
    when_unknown: ClassVar[Mapping[str, Setting]] = {}
    """Settings to print where the change depends on a knob that is unknown."""
    assumes: ClassVar[Mapping[str, Setting]] = {}
    """Facts about the run that advice to a person assumes where they are unknown, as `remark`
    then says; `tuned` reads them among the readings, true as 1. `assumed` names the fact that one
    of them is assumed. A change of a live run assumes nothing."""
    crash: ClassVar[CrashKind | None] = None
    """The kind of crash that calls for it, where no rule does."""
    needs_memory: ClassVar[bool] = False
    """Whether it needs more GPU memory, which a run that ended without any does not have."""
    alternatives: ClassVar[tuple[str, ...]] = ()
    """Ids of remedies with the same effect. A rule that calls for this one calls for them too."""

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """The knobs to set, given those in force.

        Only knobs with a known setting are changed, so that undo can restore them. Empty if the
        remedy is already in force, cannot help, needs a knob that is unknown, or has instructions
        for a person only.
        """
        is_known = all(name in knobs for name in (*self.settings, *self.requires))
        if not is_known or any(knobs[name] != value for name, value in self.requires.items()):
            return {}
        return {name: value for name, value in self.settings.items() if knobs[name] != value}

    def tuned(
        self,
        change: dict[str, Setting],
        readings: Readings,  # noqa: ARG002 - overridden
    ) -> dict[str, Setting]:
        """The change, with values computed from the run where possible."""
        return change

    def title_for(
        self,
        change: Mapping[str, Setting],  # noqa: ARG002 - overridden
        known: Readings,  # noqa: ARG002 - overridden
    ) -> str:
        """The title for a run, given the change and the numbers that are known."""
        return self.title

    def remark(
        self,
        change: Mapping[str, Setting],  # noqa: ARG002 - overridden
        known: Readings,  # noqa: ARG002 - overridden
    ) -> str:
        """What a change of a run assumes, given the numbers that are known; may be empty."""
        return ""

    def obstacle(self, knobs: Mapping[str, Setting], readings: Readings) -> str:
        """Why the remedy cannot help this run; empty if it can, or if that is unknown."""
        if self.acts_on and self.acts_on.is_unmet(self.acts_on.known(knobs, readings)):
            return self.acts_on.otherwise
        for name, value in self.requires.items():
            setting = knobs.get(name, value)
            if setting not in (value, self.settings.get(name)):
                return f"it requires {name} {value}, and the run has {setting}"
        return ""

    @property
    def targets(self) -> tuple[Criterion, ...]:
        """All targets, the most informative first; one of them must move."""
        return (self.target, *self.more_targets)

    @classmethod
    def manual(cls) -> str:
        """The remedy's page."""
        return inspect.getdoc(cls) or ""


def number(knobs: Mapping[str, Setting], name: str) -> float | None:
    """The number that a knob is set to; None if it is unknown, not a number or not finite."""
    setting = knobs.get(name)
    if isinstance(setting, bool) or not isinstance(setting, int | float):
        return None
    return float(setting) if abs(setting) <= sys.float_info.max else None


def assumed(fact: str) -> str:
    """The fact that another one is assumed and not known."""
    return f"{fact}/assumed"


def round_to_two_digits(value: float) -> float:
    """`value` rounded to two significant digits, so that the setting is easy to read."""
    return float(f"{value:.2g}")

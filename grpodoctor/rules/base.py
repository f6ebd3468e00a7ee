"""What a rule is, and what it may say."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.values import Max, Min, NotApplicable

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")
"""Mildest first. `info` explains, `warning` costs, `critical` kills a run."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number that a finding rests on."""

    metric: str
    step: int
    value: float
    baseline: float | None = None
    """What it is compared with: the run's own start, a bound, a noise floor."""
    where: str | None = None
    """The sequence or tensor that caused it."""


def cite(chart: Chart, metric: str, baseline: float | None = None) -> Evidence:
    """The latest reading of a metric as evidence, with the sequence that caused it if one did."""
    series, reading = chart.series(metric), chart.reading(metric)
    where = reading.where if isinstance(reading, Max | Min) else None
    return Evidence(metric, series.last_step, series.last, baseline, where)


def cite_all(chart: Chart, *metrics: str | None) -> tuple[Evidence, ...]:
    """The latest reading of each metric that was ever read, against the run's own start."""
    read = [name for name in metrics if name is not None and len(chart.series(name))]
    starts = [chart.baseline(name) for name in read]
    return tuple(
        cite(chart, name, start.level if start else None)
        for name, start in zip(read, starts, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a rule saw at one step. The engine turns sightings that persist into a finding."""

    severity: Severity
    summary: str
    """One sentence with the numbers in it, for a person."""
    evidence: tuple[Evidence, ...]
    remedies: tuple[str, ...] | None = None
    """Remedy ids, best first, where they depend on what was seen; else the rule's own."""
    since: Callable[[], int] | None = None
    """Finds the step since which it has been so, where that takes fewer readings than a sighting
    does; asked once, when a row of sightings begins."""


RuleResult = Sighting | NotApplicable | None


@dataclass(frozen=True, slots=True)
class Finding:
    """A sighting that persisted."""

    code: str
    name: str
    severity: Severity
    onset_step: int
    """The first step of the unbroken row of sightings, or an earlier one whose readings already
    show what they saw."""
    last_step: int
    """The last step at which it was seen."""
    active: bool
    summary: str
    evidence: tuple[Evidence, ...]
    remedies: tuple[str, ...]
    references: tuple[str, ...]

    def resolved(self) -> Finding:
        """The same finding, over."""
        return replace(self, active=False)


Need = str | tuple[str, ...]
"""A metric a rule cannot do without; a tuple holds alternatives, best first."""


@dataclass(frozen=True)
class Rule(ABC):
    """Base of all rules: the class holds its identity, the fields its thresholds.

    The docstring of each rule is its manual page, with the headings *What it sees*, *Why it
    matters*, *Evidence it needs*, *Remedies*, *When it is wrong* and *References*.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    former_names: ClassVar[tuple[str, ...]] = ()
    """Names from earlier versions, which users may still type."""
    summary: ClassVar[str]
    """One line for the list of rules."""
    inputs: ClassVar[tuple[Need, ...]]
    remedies: ClassVar[tuple[str, ...]] = ()
    references: ClassVar[tuple[str, ...]] = ()
    persistence: ClassVar[int] = 3
    """Sightings in a row before a finding is raised."""
    clearance: ClassVar[int] = 5
    """Steps in a row without a sighting before a finding is resolved."""
    cadence: ClassVar[int] = 1
    """Look at every so many steps only: for a rule whose long window barely moves in one."""
    judges_applicability: ClassVar[bool] = False
    """Whether an input that is not applicable is itself what the rule looks at."""

    @property
    def family(self) -> str:
        """The three letters of the code."""
        return self.code[:3]

    @abstractmethod
    def examine(self, chart: Chart) -> RuleResult:
        """Look at the chart at its current step. Pure: no state, no side effects."""

    @classmethod
    def manual(cls) -> str:
        """The manual page."""
        return inspect.getdoc(cls) or ""

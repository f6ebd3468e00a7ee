"""The base class of all rules, and what a rule returns."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, dataclass_transform

from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import BASELINE
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.values import Max, Min, NotApplicable

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")
"""Mildest first: `info` explains, `warning` wastes compute, `critical` ends or ruins a run."""


_EXTREMES = (Max, Min)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number that a finding rests on."""

    metric: str
    step: int
    value: float
    baseline: float | None = None
    """Value for comparison: the run's starting value, a bound or a noise floor."""
    where: str | None = None
    """The sequence or tensor that caused the value."""
    median: float | None = None
    """The median of the latest ten readings, which summaries rather state than a single one; None
    if the value is no reading of a series."""


def cite(chart: Chart, metric: str, baseline: float | None = None) -> Evidence:
    """The latest reading of a metric as evidence, with the sequence that caused it if known."""
    series, reading = chart.series(metric), chart.reading(metric)
    where = reading.where if isinstance(reading, _EXTREMES) else None
    median = series.level(BASELINE) if len(series) > 1 else None
    return Evidence(metric, series.last_step, series.last, baseline, where, median)


def cite_all(
    chart: Chart, *metrics: str | None, starts: Mapping[str, float | None] | None = None
) -> tuple[Evidence, ...]:
    """The latest reading of each logged metric as evidence, with its starting value.

    Args:
        chart: the run's chart.
        metrics: the metrics, the decisive one first; those that were not logged are left out.
        starts: starting values that the rule's sentence states, where they are not the baseline.
    """
    logged = [name for name in metrics if name is not None and len(chart.series(name))]
    baselines = {name: start.level for name in logged if (start := chart.baseline(name))}
    shown = {**baselines, **(starts or {})}
    return tuple(cite(chart, name, shown.get(name)) for name in logged)


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a rule saw at one step. The engine turns persistent sightings into a finding."""

    severity: Severity
    summary: str
    """One sentence of at most 20 words that contains the decisive number."""
    evidence: tuple[Evidence, ...]
    remedies: tuple[str, ...] | None = None
    """Remedy ids, best first, if they depend on the finding. None: the rule's own remedies."""
    find_onset: Callable[[], int] | None = None
    """Returns the step at which the condition began, for rules that need many readings to see it.
    Called once, at the first of consecutive sightings."""
    ends_severer: bool = False
    """Whether what was seen refutes a more severe finding of the rule, which ends at once."""
    condition: Condition | None = None
    """The condition of the run that was seen; None for the rule's own."""
    weighs_outcome: bool = False
    """Whether the severity already takes into account that the outcome rose, so that its rise does
    not excuse what was seen."""


@dataclass(frozen=True, slots=True)
class NotLogged:
    """The readings of this step do not suffice, so the rule counts as skipped until others do.

    An alternative input may show extremes only, or an optional reading would decide the case.
    """


NOT_LOGGED = NotLogged()

UNDECIDED = NotLogged()
"""The readings of this step no longer show what the rule looks for, but do not exclude it either,
such as a lower bound of 0. The rule counts as skipped; its active finding ends after a while."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the rule looks for is certainly over: its active finding ends at once."""


RECOVERED = Recovered()

RuleResult = Sighting | NotApplicable | NotLogged | Recovered | None
"""What `Rule.examine` returns; None if the rule saw nothing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A sighting that persisted."""

    code: str
    name: str
    severity: Severity
    onset_step: int
    """The first of the consecutive sightings, or an earlier step at which the condition began."""
    last_step: int
    """The step of the last sighting."""
    active: bool
    summary: str
    evidence: tuple[Evidence, ...]
    remedies: tuple[str, ...]
    references: tuple[str, ...]
    condition: Condition | None = None
    """The condition of the run that it reports; None for the rule's own."""
    weighs_outcome: bool = False
    """Whether a rise of the outcome does not excuse it."""

    def resolved(self) -> Finding:
        """The same finding, no longer active."""
        return replace(self, active=False)


Need = str | tuple[str, ...]
"""A metric that a rule requires. A tuple lists alternatives, best first."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Rule(ABC):
    """Base class of all rules: class variables identify the rule, other variables are thresholds.

    A rule is used like a frozen dataclass. It is none, because making a hundred dataclasses takes
    a tenth of the time that `check` takes for a short log.

    The docstring of a rule is its manual page, with the headings *What it sees*, *Why it
    matters*, *Evidence it needs*, *Remedies*, *When it is wrong* and *References*.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    former_names: ClassVar[tuple[str, ...]] = ()
    """Names from earlier versions, which users may still type."""
    summary: ClassVar[str]
    """One line for the list of rules."""
    inputs: ClassVar[tuple[Need, ...]]
    condition: ClassVar[Condition] = "other"
    """What a finding says about the run; the causal table lists what this condition causes."""
    explains: ClassVar[tuple[Condition, ...]] = ()
    """Further conditions that a finding of this rule can cause, beyond those in the table."""
    confirm: ClassVar[str] = ""
    """What would confirm or exclude this cause; empty for the text of its condition."""
    remedies: ClassVar[tuple[str, ...]] = ()
    references: ClassVar[tuple[str, ...]] = ()
    persistence: ClassVar[int] = 3
    """Consecutive sightings that raise a finding."""
    clearance: ClassVar[int] = 5
    """Consecutive steps without a sighting that resolve a finding."""
    cadence: ClassVar[int] = 1
    """Examine every this many steps, for a rule whose long window hardly changes in one step."""
    judges_levels: ClassVar[bool] = False
    """Whether the rule judges levels of ten readings and more. In a long run it is then examined at
    every second step while it sees nothing, since the level hardly changes in one."""
    reads_config: ClassVar[bool] = False
    """Whether the rule reads the run's configuration instead of metrics. It is examined at the
    first step and after each change of a knob; without a known config it is skipped."""
    handles_not_applicable: ClassVar[bool] = False
    """Whether the rule is also examined when an input is not applicable."""
    handles_nonfinite: ClassVar[bool] = False
    """Whether the rule is also examined when an input has no finite entry."""
    judged_by_outcome: ClassVar[bool] = False
    """Whether a reward that has risen, and has kept what it gained, shows that what the rule saw
    does no harm. The report then lists its findings as `info`: a setting, a KL divergence, a low
    entropy or equal rewards that usually mean a fault did not stop this run from learning."""

    def __init__(self, **thresholds: Any) -> None:
        unknown = thresholds.keys() - self.thresholds().keys()
        if unknown:
            raise TypeError(f"{self.code} has no threshold {', '.join(sorted(unknown))}")
        vars(self).update(thresholds)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self.code}.{name} cannot be changed; use with_thresholds")

    def thresholds(self) -> dict[str, Any]:
        """The thresholds by name, in the order of the source."""
        return {
            name: getattr(self, name)
            for base in reversed(type(self).__mro__)
            for name, kind in vars(base).get("__annotations__", {}).items()
            if not kind.startswith("ClassVar")
        }

    def with_thresholds(self, **thresholds: Any) -> Self:
        """The same rule with other thresholds."""
        return type(self)(**{**self.thresholds(), **thresholds})

    @property
    def family(self) -> str:
        """The first three letters of the code."""
        return self.code[:3]

    @abstractmethod
    def examine(self, chart: Chart) -> RuleResult:
        """Examine the chart at its current step, without state or side effects."""

    @classmethod
    def manual(cls) -> str:
        """The manual page."""
        return inspect.getdoc(cls) or ""

"""One line about a run, for the table of many runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from grpodoctor.errors import GrpodoctorError
from grpodoctor.monitor.dashboard.run_files import file_state
from grpodoctor.monitor.dashboard.settings import DashboardSettings
from grpodoctor.monitor.diagnosis.costs import Cost
from grpodoctor.monitor.diagnosis.problems import is_alarm
from grpodoctor.monitor.downsampled_series import SeriesByMetric
from grpodoctor.monitor.replay import replay
from grpodoctor.monitor.report import Report
from grpodoctor.rules.base import Finding
from grpodoctor.support.numbers import count_of, duration

SPARKLINE_POINTS = 60
"""Points of a sparkline: as many as a column of the table has room for."""

_OUTCOMES = ("reward/mean", "accuracy/train")


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What the table of runs shows about one run."""

    verdict: str
    """The kind of the verdict; `unreadable` if there is none."""
    sentence: str
    """The verdict's sentence, or why the run cannot be read."""
    framework: str = ""
    model: str = ""
    steps: int = 0
    last_step: int | None = None
    finding: str = ""
    """Code and name of the worst finding, and whether it is resolved; empty without one."""
    severity: str = ""
    since: int | None = None
    """Onset of the worst finding; None if it is resolved."""
    cost: str = ""
    """What the run spent since then."""
    outcome: str = ""
    """The metric of the sparkline."""
    sparkline: tuple[float, ...] = ()
    written: float = 0.0
    """Unix time of the latest write."""

    def to_json(self) -> dict[str, Any]:
        """The summary as the process that made it sends it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`."""
        return cls(**{**data, "sparkline": tuple(data["sparkline"])})


def summarize(path: Path, settings: DashboardSettings) -> RunSummary:
    """Examine a run; one that cannot be read gets a line as well."""
    written = file_state(path).newest
    try:
        data = replay(
            path,
            framework=settings.framework,
            project=settings.project(),
            options=settings.read_options(),
        )
    except GrpodoctorError as error:
        return RunSummary("unreadable", str(error), written=written)
    outcome = next((name for name in _OUTCOMES if data.series.points(name)), "")
    return _summary(data.report, outcome, data.series, written)


def _summary(report: Report, outcome: str, series: SeriesByMetric, written: float) -> RunSummary:
    verdict, run = report.diagnosis.verdict, report.run
    worst = next(iter(report.diagnosis.problems), None)
    if worst is not None and not any(map(is_alarm, worst.findings)):
        worst = None
    return RunSummary(
        verdict=verdict.kind,
        sentence=verdict.text,
        framework=run.framework,
        model=run.model,
        steps=run.steps,
        last_step=run.last_step,
        finding=_finding_name(worst.present) if worst else "",
        severity=worst.severity if worst else "",
        since=worst.present.onset_step if worst and worst.present.active else None,
        cost=cost_text(worst.cost) if worst and worst.present.active else "",
        outcome=outcome,
        sparkline=sparkline(series, outcome),
        written=written,
    )


def _finding_name(finding: Finding) -> str:
    name = f"{finding.code} {finding.name}"
    return name if finding.active else f"{name} (resolved)"


def sparkline(series: SeriesByMetric, metric: str) -> tuple[float, ...]:
    """A metric over the whole run in few points: the mean of each part, so noise is averaged."""
    values = [point.value for point in series.points(metric) if math.isfinite(point.value)]
    width = max(1, -(-len(values) // SPARKLINE_POINTS))
    parts = [values[at : at + width] for at in range(0, len(values), width)]
    return tuple(sum(part) / len(part) for part in parts)


def cost_text(cost: Cost) -> str:
    """What a fault has cost, in the most telling unit that is known."""
    steps = count_of(cost.steps, "step")
    if cost.gpu_hours is not None:
        return f"{steps}, {cost.gpu_hours:.3g} GPU-hours"
    return steps if cost.hours is None else f"{steps}, {duration(3600 * cost.hours)}"

"""Everything that a report of a run shows: the report, its vitals, its charts and its responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from grpodoctor.monitor.chart_specs import CHARTED_METRICS
from grpodoctor.monitor.diagnosis.diagnose import Diagnosis
from grpodoctor.monitor.diagnosis.verdict import Verdict
from grpodoctor.monitor.downsampled_series import SeriesByMetric
from grpodoctor.monitor.examination import Examination
from grpodoctor.monitor.report import Report, RunFacts
from grpodoctor.monitor.sample_responses import (
    RecordedResponses,
    ResponseSource,
    SampleResponse,
    sample_responses,
)
from grpodoctor.monitor.vitals import Vital, vital_signs
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import Baseline
from grpodoctor.support.safe_text import plain


@dataclass(frozen=True, slots=True)
class ComparisonRun:
    """A second run that is drawn into the same charts."""

    label: str
    """Name of the run in the legends."""
    series: SeriesByMetric
    summary: str
    """The result of the comparison, in one sentence."""


@dataclass(frozen=True, slots=True)
class ReportData:
    """A report with the vitals, charts and responses that people see next to it."""

    report: Report
    vitals: tuple[Vital, ...] = ()
    series: SeriesByMetric = field(default_factory=lambda: SeriesByMetric(()))
    starts: Mapping[str, Baseline] = field(default_factory=dict)
    """Starting value and noise of the charted metrics that have enough readings."""
    responses: ResponseSource | None = None
    """The run's responses, read only if they are shown."""
    comparison: ComparisonRun | None = None

    def with_comparison(self, comparison: ComparisonRun) -> ReportData:
        """The same data, compared with another run."""
        return replace(self, comparison=comparison)

    def sample_responses(self) -> tuple[SampleResponse, ...]:
        """The responses worth reading; reads the rollouts."""
        return sample_responses(self.report, self.responses) if self.responses else ()


def unexamined(path: str, why: str, log: str = "") -> ReportData:
    """The report data of a log that is not examined, as it is of another kind of training.

    Args:
        path: what the user gave.
        why: what the log is and what to do, without a full stop.
        log: the log on this machine; empty for a copy.
    """
    diagnosis = Diagnosis(verdict=Verdict("not examined", f"{plain(why)}."))
    return ReportData(Report(RunFacts(path, "unknown", log=log), diagnosis))


def report_data(
    examination: Examination, framework: str | None = None, responses: ResponseSource | None = None
) -> ReportData:
    """The report data of an examined run.

    Args:
        examination: the examined run.
        framework: framework whose keys the remedies show; the run's own if None.
        responses: the run's responses; those of our own recorder if None.
    """
    return ReportData(
        report=examination.report(framework),
        vitals=tuple(vital_signs(examination.engine.chart)),
        series=examination.series,
        starts=_starts(examination.engine.chart),
        responses=RecordedResponses(examination.directory) if responses is None else responses,
    )


def _starts(chart: Chart) -> dict[str, Baseline]:
    starts = {metric: chart.series(metric).start for metric in CHARTED_METRICS}
    return {metric: start for metric, start in starts.items() if start is not None}

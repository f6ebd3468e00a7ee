"""The content of the charts of a run: curves, starting range, onsets and treatments, in words too.

A panel does not depend on the library that draws it. The HTML report and the dashboard draw the
same panels.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import median

from grpodoctor.monitor.chart_specs import CHARTS, ChartSpec, Curve
from grpodoctor.monitor.downsampled_series import LOGGED, Point, SeriesByMetric
from grpodoctor.monitor.report import Report, TreatmentEntry
from grpodoctor.monitor.report_data import ComparisonRun, ReportData
from grpodoctor.monitor.vitals import format_reading
from grpodoctor.report.run.finding_view import anchor_of
from grpodoctor.rules.base import Finding, Severity
from grpodoctor.support.numbers import count_of
from grpodoctor.support.safe_text import plain
from grpodoctor.vocabulary.metrics import metric_of

_LOG_RATIO = 100.0
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""
_SPREADS = 3.0
"""Standard deviations of one reading around the starting value: 99.7 % of the readings of a metric
that does not change."""
_REGULAR_SHARE = 0.9
_IRREGULAR_GAP = 4.0
"""A longer pause than the usual one is a gap if the pauses are regular; otherwise if it is this
many times as long, because readings that were thinned out are up to twice their usual distance
apart on each side."""
_NAME_LETTERS, _SUMMARY_LETTERS = 40, 160


@dataclass(frozen=True)
class Line:
    """The readings of one curve. NaN separates readings that no line may connect."""

    curve: Curve
    points: tuple[Point, ...]
    nonfinite_steps: tuple[int, ...] = ()
    """Steps with a reading that is NaN or infinite."""
    means: tuple[tuple[float, float], ...] = ()
    """Steps and moving means, if the reader wants them."""

    @cached_property
    def finite(self) -> list[Point]:
        """The points that are drawn, by step."""
        return [point for point in self.points if math.isfinite(point.value)]


@dataclass(frozen=True, slots=True)
class Range:
    """The starting value of a metric, and where its readings stay if nothing changes."""

    level: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Onset:
    """The beginning of a finding."""

    step: int
    value: float | None
    """The curve's value there; None if the finding rests on other metrics."""
    metric: str
    """The curve's metric; empty if the finding rests on other metrics."""
    code: str
    severity: Severity
    title: str
    """Code, name and summary of the finding."""
    anchor: str
    """Place of the finding on the page, and its id in links."""


@dataclass(frozen=True, slots=True)
class TreatmentMark:
    """An act of treatment."""

    step: int
    label: str
    title: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart of a run."""

    key: str
    title: str
    unit: str
    lines: tuple[Line, ...]
    steps: tuple[int, int]
    """The first and last step of the run; the same in all panels."""
    has_names: bool
    """Whether the curves need their names, because the title does not name them."""
    is_logarithmic: bool
    start: Range | None
    """Starting range of the first curve; None if it has too few readings."""
    onsets: tuple[Onset, ...]
    treatments: tuple[TreatmentMark, ...]
    description: str
    """The content of the chart in words."""


def panels(data: ReportData) -> tuple[Panel, ...]:
    """The charts that have readings, in the order in which they should be read."""
    charts = [_chart_with_readings(spec, data.series) for spec in CHARTS]
    charts = [(chart, lines) for chart, lines in charts if lines]
    steps = [point.step for _, lines in charts for line in lines for point in line.points]
    span = (min(steps), max(steps)) if steps else (0, 0)
    return tuple(_panel(chart, lines, data, span) for chart, lines in charts)


def metric_panels(
    data: ReportData,
    series: SeriesByMetric,
    metrics: Sequence[str],
    steps: tuple[int, int] | None = None,
) -> tuple[Panel, ...]:
    """A chart for each of the metrics that have readings.

    Args:
        data: the run's report, for the marks of findings and treatments.
        series: the readings.
        metrics: the metrics, in the order of their charts.
        steps: the first and last step of the charts; those of the readings by default.
    """
    drawn = []
    for metric in metrics:
        row = metric_of(metric)
        curve = Curve("", metric, "blue")
        spec = ChartSpec(metric, metric_label(metric), row.unit if row else "", (curve,))
        if lines := _lines(spec.curves, series):
            own = lines[0].points[0].step, lines[0].points[-1].step
            drawn.append(_panel(spec, lines, data, steps or own))
    return tuple(drawn)


def metric_label(metric: str) -> str:
    """A metric's name, or the key of a number that the log contains without a metric."""
    key = metric.removeprefix(LOGGED)
    return metric if key == metric else f"{plain(key, limit=_NAME_LETTERS)} (as logged)"


def _chart_with_readings(spec: ChartSpec, series: SeriesByMetric) -> tuple[ChartSpec, list[Line]]:
    """The chart, or its first fallback with readings."""
    lines = _lines(spec.curves, series)
    if lines or spec.fallback is None:
        return spec, lines
    return _chart_with_readings(spec.fallback, series)


def _lines(curves: Sequence[Curve], series: SeriesByMetric) -> list[Line]:
    lines = [_line(curve, series.points(curve.metric)) for curve in curves]
    return [line for line in lines if line.finite]


def _line(curve: Curve, points: Sequence[Point]) -> Line:
    nonfinite = (point.step for point in points if not math.isfinite(point.value))
    return Line(curve, tuple(_with_gaps(points)), tuple(nonfinite))


def _with_gaps(points: Sequence[Point]) -> Iterator[Point]:
    """The points with NaN instead of infinities, and between two readings with a gap."""
    longest = _longest_pause(points)
    before: Point | None = None
    for point in points:
        if before is not None and point.step - before.step > longest:
            yield Point(before.step + 1, math.nan)
        yield point if math.isfinite(point.value) else Point(point.step, math.nan)
        before = point


def _longest_pause(points: Sequence[Point]) -> float:
    """The distance in steps above which two readings have a gap between them."""
    pauses = [after.step - before.step for before, after in pairwise(points)]
    if not pauses:
        return math.inf
    usual = median(pauses)
    is_regular = pauses.count(int(usual)) >= _REGULAR_SHARE * len(pauses)
    return usual if is_regular else _IRREGULAR_GAP * usual


def _panel(chart: ChartSpec, lines: list[Line], data: ReportData, steps: tuple[int, int]) -> Panel:
    shown = [*lines, *_comparison_lines(chart, data.comparison)]
    panel = Panel(
        key=chart.key,
        title=chart.title,
        unit=chart.unit,
        lines=tuple(shown),
        steps=steps,
        has_names=len(shown) > 1 or len(chart.curves) > 1,
        is_logarithmic=chart.spans_decades and _spans_decades(shown),
        start=_start(lines[0].curve.metric, data),
        onsets=tuple(_onset(finding, lines) for finding in _marked(data.report)),
        treatments=tuple(_treatments(data.report)),
        description="",
    )
    return replace(panel, description=_in_words(panel))


def _comparison_lines(chart: ChartSpec, comparison: ComparisonRun | None) -> list[Line]:
    """The curves of the second run, in gray."""
    if comparison is None:
        return []
    curves = [
        replace(
            curve,
            label=f"{curve.label}, {plain(comparison.label, limit=_NAME_LETTERS)}",
            color="gray",
        )
        for curve in chart.curves
        if curve.compared
    ]
    return _lines(curves, comparison.series)


def _spans_decades(lines: Sequence[Line]) -> bool:
    values = [point.value for line in lines for point in line.finite]
    return min(values) > 0 and max(values) / min(values) > _LOG_RATIO


def _start(metric: str, data: ReportData) -> Range | None:
    start, row = data.starts.get(metric), metric_of(metric)
    if start is None:
        return None
    low, high = (row.low, row.high) if row else (-math.inf, math.inf)
    spread = _SPREADS * start.spread
    return Range(
        start.level,
        low=max(low, start.level - spread),
        high=min(high, start.level + spread),
    )


def _marked(report: Report) -> list[Finding]:
    """The findings by onset; those about the run as a whole have no place on a curve."""
    findings = [finding for finding in report.findings if finding.evidence]
    return sorted(findings, key=lambda finding: finding.onset_step)


def _onset(finding: Finding, lines: Sequence[Line]) -> Onset:
    metrics = [evidence.metric for evidence in finding.evidence]
    ranked = sorted(
        (line for line in lines if line.curve.metric in metrics),
        key=lambda line: metrics.index(line.curve.metric),
    )
    summary = plain(finding.summary, limit=_SUMMARY_LETTERS)
    return Onset(
        step=finding.onset_step,
        value=_value_at(ranked[0], finding.onset_step) if ranked else None,
        metric=ranked[0].curve.metric if ranked else "",
        code=finding.code,
        severity=finding.severity,
        title=f"{finding.code} {finding.name}: {summary}",
        anchor=anchor_of(finding),
    )


def _value_at(line: Line, step: int) -> float:
    """The reading at a step, or the nearest one."""
    after = bisect_left(line.finite, step, key=lambda point: point.step)
    nearest = line.finite[max(0, after - 1) : after + 1]
    return min(nearest, key=lambda point: abs(point.step - step)).value


def _treatments(report: Report) -> Iterator[TreatmentMark]:
    for entry in report.treatments:
        if entry.kind in {"applied", "kept", "undone"}:
            yield TreatmentMark(entry.step, entry.kind, _title(entry))


def _title(entry: TreatmentEntry) -> str:
    label = plain(f"{entry.remedy} {entry.kind}", limit=_NAME_LETTERS)
    detail = plain(entry.detail, limit=_SUMMARY_LETTERS)
    return f"{label}: {detail}" if detail else label


def _in_words(panel: Panel) -> str:
    """The content of a chart for those who cannot see it."""
    sentences = [_curve_in_words(line, panel.has_names) for line in panel.lines]
    if panel.start is not None:
        metric = panel.lines[0].curve.metric
        low, high = (format_reading(metric, each) for each in (panel.start.low, panel.start.high))
        sentences.append(f"Starting range {low} to {high}.")
    onsets = [f"{each.code} at step {each.step}" for each in panel.onsets if each.value is not None]
    if onsets:
        sentences.append(f"Findings: {', '.join(onsets)}.")
    return " ".join(sentences)


def _curve_in_words(line: Line, is_named: bool) -> str:
    points, metric = line.finite, line.curve.metric
    low, high = (pick(points, key=lambda point: point.value) for pick in (min, max))
    name = f"{line.curve.label.capitalize()}: " if is_named else ""
    unusable = len(line.nonfinite_steps)
    nonfinite = f", {count_of(unusable, 'reading')} not finite" if unusable else ""
    if low.value == high.value:
        where = f"at step {low.step}" if len(points) == 1 else "at every step"
        return f"{name}{format_reading(metric, low.value)} {where}{nonfinite}."
    first, last, lowest, highest = (
        format_reading(metric, point.value) for point in (points[0], points[-1], low, high)
    )
    extremes = f"lowest {lowest} at step {low.step}, highest {highest} at step {high.step}"
    return f"{name}from {first} to {last}, {extremes}{nonfinite}."

"""The charts that the HTML report and the dashboard share."""

import itertools
import math

import numpy as np
import pytest

from grpodoctor.monitor.chart_specs import CHARTED_METRICS, CHARTS
from grpodoctor.monitor.downsampled_series import CAPACITY, SeriesByMetric
from grpodoctor.monitor.replay import replay
from grpodoctor.monitor.report import Report, RunFacts, TreatmentEntry
from grpodoctor.monitor.report_data import ReportData
from grpodoctor.report.figures import COLORS
from grpodoctor.report.run.charts import linked_figure, panel_figure
from grpodoctor.report.run.panels import panels
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.values import Max, Mean, NotApplicable
from tests.report.simulated import record_run


def data_of(readings, treatments=()):
    """Report data of a run with these readings: a dictionary for each step."""
    series = SeriesByMetric(CHARTED_METRICS)
    for step, values in readings:
        series.observe(StepRecord(step, values))
    return ReportData(Report(RunFacts("run", "verl"), treatments=treatments), series=series)


def drawn(figure, metric):
    """Steps and values of a metric's curve; None where the line is broken."""
    (trace,) = [each for each in figure.data if (each.meta or {}).get("metric") == metric]
    values = (None if math.isnan(value) else float(f"{value:.6g}") for value in trace.y)
    return dict(zip(trace.x, values, strict=True))


@pytest.fixture(scope="module")
def sick(tmp_path_factory):
    return replay(record_run(tmp_path_factory.mktemp("runs") / "sick", 80, sick_from=30))


def test_every_charted_metric_is_in_the_vocabulary():
    assert all(metric_of(metric) for metric in CHARTED_METRICS)
    assert len({chart.key for chart in CHARTS}) == len(CHARTS)


def test_curves_of_a_chart_differ_in_more_than_their_color():
    for chart in CHARTS:
        assert len({curve.dash for curve in chart.curves}) == len(chart.curves), chart.title


@pytest.mark.parametrize("metric", ["entropy/mean", "mismatch/prob_diff_max/worst_sequence"])
def test_a_spike_of_one_step_is_drawn_in_a_long_run(metric):
    steps = CAPACITY * 10
    readings = ((s, {metric: Max(0.9 if s == 7777 else 0.1, f"seq-{s}")}) for s in range(steps))
    (panel,) = panels(data_of(readings))
    figure = panel_figure(panel)
    assert drawn(figure, metric)[7777] == 0.9
    assert "highest 0.9 at step 7777" in panel.description
    spike = list(figure.data[0].x).index(7777)
    assert list(figure.data[0].customdata[spike]) == ["seq-7777"]


def test_a_nan_breaks_the_line_and_is_marked():
    readings = [
        (step, {"entropy/mean": Mean.of_number(math.nan if step == 60 else 1.0)})
        for step in range(100)
    ]
    (panel,) = panels(data_of(readings))
    figure = panel_figure(panel)
    assert drawn(figure, "entropy/mean")[60] is None
    (marked,) = [trace for trace in figure.data if trace.name == "not finite"]
    assert list(marked.x) == [60]
    assert "1 reading not finite" in panel.description


def test_steps_without_a_reading_break_the_line():
    readings = [(step, {"entropy/mean": Mean.of_number(1.0)}) for step in (*range(50), 55, 56)]
    (panel,) = panels(data_of(readings))
    line = drawn(panel_figure(panel), "entropy/mean")
    assert [step for step, value in line.items() if value is None] == [50]


def test_a_metric_that_is_logged_now_and_then_is_one_line():
    readings = [
        (step, {"accuracy/heldout": Mean.of_number(0.5), "entropy/mean": Mean.of_number(1.0)})
        if step % 10 == 0
        else (step, {"entropy/mean": Mean.of_number(1.0), "clip/low_rate": NotApplicable("no")})
        for step in range(101)
    ]
    accuracy, _ = panels(data_of(readings))
    line = drawn(panel_figure(accuracy), "accuracy/heldout")
    assert list(line) == list(range(0, 101, 10))
    assert None not in line.values()


def test_a_reading_between_two_gaps_has_a_marker():
    readings = [
        (step, {"entropy/mean": Mean.of_number(math.nan if step in (69, 71) else 1.0)})
        for step in range(100)
    ]
    (panel,) = panels(data_of(readings))
    curve = panel_figure(panel).data[0]
    sizes = dict(zip(curve.x, curve.marker.size, strict=True))
    assert sizes[70] > 0
    assert sizes[40] == 0


@pytest.mark.parametrize("metric", ["reward/mean", "accuracy/train", "entropy/mean"])
def test_no_logarithmic_axis_where_values_do_not_span_decades(metric):
    readings = [(step, {metric: Mean.of_number(0.0001 + step)}) for step in range(60)]
    (panel,) = panels(data_of(readings))
    assert panel_figure(panel).layout.yaxis.type == "linear"


def test_a_gradient_norm_over_decades_has_a_logarithmic_axis():
    readings = [(s, {"optimizer/grad_norm": Mean.of_number(10.0 ** (s % 5))}) for s in range(60)]
    (panel,) = panels(data_of(readings))
    assert panel_figure(panel).layout.yaxis.type == "log"


def test_the_other_estimator_is_shown_where_k3_is_not_logged():
    readings = [(s, {"kl/reference/k1": Mean.of_number(-0.01 * s)}) for s in range(20)]
    (panel,) = panels(data_of(readings))
    assert panel.unit == "nats per token (k1)"
    assert panel_figure(panel).layout.yaxis.type == "linear"


def test_the_starting_range_is_drawn_behind_the_first_curve(sick):
    (entropy,) = [panel for panel in panels(sick) if panel.key == "entropy"]
    start = sick.starts["entropy/mean"]
    assert entropy.start.level == start.level
    assert entropy.start.low < start.level < entropy.start.high
    (band,) = [shape for shape in panel_figure(entropy).layout.shapes if shape.type == "rect"]
    assert (band.y0, band.y1) == (entropy.start.low, entropy.start.high)


def test_a_starting_range_stays_within_the_metric_s_range(sick):
    (groups,) = [panel for panel in panels(sick) if panel.key == "groups"]
    assert groups.start.low == 0


def test_an_onset_lies_on_the_curve_that_the_finding_rests_on(sick):
    (finding,) = [each for each in sick.report.findings if each.code == "ENT001"]
    (entropy,) = [panel for panel in panels(sick) if panel.key == "entropy"]
    figure = panel_figure(entropy)
    (marks,) = [trace for trace in figure.data if (trace.meta or {}).get("findings")]
    at = ["ENT001" in text for text in marks.text].index(True)
    assert marks.x[at] == finding.onset_step
    assert marks.y[at] == pytest.approx(drawn(figure, "entropy/mean")[finding.onset_step], rel=1e-4)
    assert f"ENT001 at step {finding.onset_step}" in entropy.description


def test_treatments_are_marked_in_every_panel():
    readings = [
        (step, {"entropy/mean": Mean.of_number(1.0), "reward/mean": Mean.of_number(0.5)})
        for step in range(60)
    ]
    act = TreatmentEntry(20, "applied", "<b>tis", {})
    for panel in panels(data_of(readings, (act, TreatmentEntry(5, "proposed", "tis", {})))):
        figure = panel_figure(panel)
        lines = [shape.x0 for shape in figure.layout.shapes if shape.line.dash is None]
        assert 20 in lines
        assert 5 not in lines
        (label,) = figure.layout.annotations
        assert label.text == "applied"
        assert label.hovertext.startswith("&lt;b&gt;tis applied")


def test_linked_panels_share_the_step_axis_and_keep_the_zoom(sick):
    drawn_panels = panels(sick)
    figure = linked_figure(drawn_panels, columns=2)
    axes = [figure.layout[f"xaxis{number or ''}"] for number in range(len(drawn_panels) + 1)
            if number != 1]  # fmt: skip
    assert len(axes) == len(drawn_panels)
    assert {axis.matches for axis in axes[1:]} == {"x"}
    ((first, last),) = {axis.range for axis in axes}
    assert -4 < first < 0
    assert 79 < last < 83
    assert figure.layout.uirevision == linked_figure(panels(sick)[:3]).layout.uirevision
    titles = {annotation.text for annotation in figure.layout.annotations}
    assert {f"<b>{panel.title}</b>" for panel in drawn_panels} <= titles


def test_panels_of_a_linked_figure_do_not_overlap(sick):
    figure = linked_figure(panels(sick), columns=2)
    places = [
        (*figure.layout[f"xaxis{n}"].domain, *figure.layout[f"yaxis{n}"].domain)
        for n in ("", *range(2, len(panels(sick)) + 1))
    ]
    for one, other in itertools.combinations(places, 2):
        beside = one[1] <= other[0] or other[1] <= one[0]
        above = one[3] <= other[2] or other[3] <= one[2]
        assert beside or above


def test_no_readings_give_no_panels():
    assert panels(data_of([])) == ()
    assert panels(data_of([(0, {"entropy/mean": Mean.of_number(math.nan)})])) == ()


# Simulation of color blindness in linear RGB: Machado, Oliveira and Fernandes 2009, severity 1.
VISION = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}


def linear(color):
    channels = np.array([int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("vision", VISION)
def test_colors_differ_for_color_blind_readers(vision):
    seen = [lab(np.array(VISION[vision]) @ linear(color)) for color in COLORS.values()]
    nearest = min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))
    assert nearest > 20  # CIE76; 2.3 is just noticeable


@pytest.mark.parametrize("background", ["#ffffff", "#1c1f25", "#0e1117"])
def test_curves_stand_out_on_light_and_dark_pages(background):
    def luminance(color):
        return float(linear(color) @ [0.2126, 0.7152, 0.0722])

    for color in COLORS.values():
        low, high = sorted([luminance(color), luminance(background)])
        assert (high + 0.05) / (low + 0.05) >= 3  # WCAG 2.1, graphical objects

from grpodoctor.monitor.chart_specs import CHARTED_METRICS
from grpodoctor.monitor.downsampled_series import SeriesByMetric
from grpodoctor.monitor.replay import replay
from grpodoctor.monitor.report import Report, RunFacts
from grpodoctor.monitor.report_data import ReportData
from grpodoctor.report.run.charts import linked_figure
from grpodoctor.report.run.finding_view import anchor_of
from grpodoctor.report.run.panels import panels
from grpodoctor.report.run.selection import SelectedPoint, selected_point, selected_steps
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import Max
from tests.report.simulated import record_run

WORST = "mismatch/prob_diff_max/worst_sequence"


def clicked(figure, curve, point):
    return selected_point({"points": [{"curve_number": curve, "point_index": point}]}, figure)


def test_a_box_selects_whole_steps():
    assert selected_steps({"box": [{"x": [20.9, 10.2], "y": [0, 1]}]}) == (11, 20)
    assert selected_steps({"box": [{"x": [10.2, 10.4], "y": [0, 1]}]}) is None
    assert selected_steps({"box": [], "points": []}) is None
    assert selected_steps({}) is None


def test_the_point_of_a_worst_sequence_opens_it():
    series = SeriesByMetric(CHARTED_METRICS)
    for step in range(5):
        series.observe(StepRecord(step, {WORST: Max(0.5, f"<b>seq-{step}</b>")}))
    figure = linked_figure(panels(ReportData(Report(RunFacts("run", "verl")), series=series)))
    assert clicked(figure, 0, 3) == SelectedPoint(3, WORST, "<b>seq-3</b>")
    assert selected_point({"points": []}, figure) is None


def test_the_mark_of_an_onset_opens_its_finding(tmp_path):
    data = replay(record_run(tmp_path / "run", 80, sick_from=30))
    figure = linked_figure(panels(data))
    anchors = {
        clicked(figure, number, index).finding_anchor
        for number, trace in enumerate(figure.data)
        if (trace.meta or {}).get("findings")
        for index in range(len(trace.x))
    }
    assert anchors
    assert anchors <= {anchor_of(finding) for finding in data.report.findings}


def test_an_ordinary_point_has_a_step_and_a_metric(tmp_path):
    data = replay(record_run(tmp_path / "run", 20))
    figure = linked_figure(panels(data))
    assert clicked(figure, 0, 7) == SelectedPoint(7, "reward/mean")

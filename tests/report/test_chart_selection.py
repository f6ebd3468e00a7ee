import pytest

from grpodoctor.monitor.chart_specs import CHARTED_METRICS
from grpodoctor.monitor.downsampled_series import SeriesByMetric
from grpodoctor.monitor.replay import replay
from grpodoctor.monitor.report import Report, RunFacts
from grpodoctor.monitor.report_data import ReportData
from grpodoctor.report.run.charts import linked_figure
from grpodoctor.report.run.finding_view import finding_key
from grpodoctor.report.run.panels import panels
from grpodoctor.report.run.selection import ClickedPoint, clicked_point, selected_steps, typed_steps
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import Max
from tests.report.simulated import record_run

WORST = "mismatch/prob_diff_max/worst_sequence"


def clicked(figure, curve, point):
    """What a browser sends about a point."""
    trace = figure.data[curve]
    data = trace.customdata[point] if trace.customdata is not None else []
    place = float(trace.x[point])
    return clicked_point({"x": place, "meta": trace.meta or {}, "customdata": list(data)})


def test_a_box_selects_whole_steps():
    assert selected_steps({"box": [{"x": [20.9, 10.2], "y": [0, 1]}]}) == (11, 20)
    assert selected_steps({"box": [{"x": [10.2, 10.4], "y": [0, 1]}]}) is None
    assert selected_steps({"box": [], "points": []}) is None
    assert selected_steps({}) is None


@pytest.mark.parametrize(
    ("text", "steps"),
    [("100-200", (100, 200)), (" 7 ", (7, 7)), ("3 \u2013 5", (3, 5)), ("3 to 5", (3, 5))],
)
def test_steps_can_be_typed(text, steps):
    assert typed_steps(text) == steps


@pytest.mark.parametrize("text", ["", "5-3", "all", "1-2-3", "-4", "1e3", "9" * 40, "٣"])
def test_other_text_is_no_interval(text):
    assert typed_steps(text) is None


def test_the_point_of_a_worst_sequence_opens_it():
    series = SeriesByMetric(CHARTED_METRICS)
    for step in range(5):
        series.observe(StepRecord(step, {WORST: Max(0.5, f"<b>seq-{step}</b>")}))
    figure = linked_figure(panels(ReportData(Report(RunFacts("run", "verl")), series=series)))
    assert clicked(figure, 0, 3) == ClickedPoint(3, sequence_id="<b>seq-3</b>")


def test_the_mark_of_an_onset_opens_its_finding(tmp_path):
    data = replay(record_run(tmp_path / "run", 80, sick_from=30))
    figure = linked_figure(panels(data))
    findings = {
        clicked(figure, number, index).finding
        for number, trace in enumerate(figure.data)
        if (trace.meta or {}).get("findings")
        for index in range(len(trace.x))
    }
    assert findings
    assert findings <= {finding_key(finding) for finding in data.report.findings}


def test_an_ordinary_point_has_a_step(tmp_path):
    data = replay(record_run(tmp_path / "run", 20))
    figure = linked_figure(panels(data))
    assert clicked(figure, 0, 7) == ClickedPoint(7)


@pytest.mark.parametrize(
    "sent", [None, [], {}, {"x": "7"}, {"x": float("nan")}, {"x": None, "customdata": 3}]
)
def test_a_click_beside_all_points_opens_nothing(sent):
    assert clicked_point(sent) is None


@pytest.mark.parametrize("data", [None, 3, [3], "text", [[]]])
def test_a_point_with_strange_data_has_its_step(data):
    assert clicked_point({"x": 7, "meta": None, "customdata": data}) == ClickedPoint(7)

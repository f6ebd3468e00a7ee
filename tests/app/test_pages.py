"""What each page says about a run, drawn without a browser."""

import base64
import json
import re
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from grpodoctor.monitor.dashboard.run_table import RunTable
from grpodoctor.monitor.replay import replay
from grpodoctor.report.run.finding_view import first_steps
from grpodoctor.rules.base import Finding
from grpodoctor.support.safe_text import markdown
from grpodoctor.trials.registry import all_trials
from tests.app.page_script import drawn_until, page_test, text_of
from tests.report.simulated import record_run

FIXTURE = Path(__file__).parent.parent / "data" / "run"
TRL_LOG = Path(__file__).parent.parent / "data" / "logs" / "deltasthicc_trainer_state.json.gz"
_ALL_READ = "finished · step 79"


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_run(tmp_path_factory.mktemp("runs") / "sick", 80, sick_from=40)


def test_the_overview_begins_with_the_diagnosis(sick: Path) -> None:
    test = drawn_until(page_test("overview", sick), _ALL_READ)
    assert not test.exception
    assert not test.error
    report = replay(sick).report
    assert markdown(report.diagnosis.verdict.text) in text_of(test)
    first = first_steps(report)
    assert test.code[0].value == "\n".join(line.commented for line in first if line.copyable)


def test_the_overview_reads_a_log_of_another_framework() -> None:
    # The finding is shown before the whole log is read.
    test = drawn_until(page_test("overview", TRL_LOG), "max_completion_length")
    assert not test.exception
    assert not test.error
    assert "LEN002" in text_of(test)


def test_the_table_lists_all_runs_with_their_verdicts(sick: Path) -> None:
    test = drawn_until(page_test("runs", sick, FIXTURE, TRL_LOG), "**3 runs**")
    assert not test.exception
    table = test.dataframe[0].value
    assert list(table["Verdict"]) == ["✖ sick"] * 3
    cause = replay(sick).report.diagnosis.problems[0].cause
    assert f"{cause.code} {cause.name}" in set(table["Worst finding"])


@pytest.fixture
def may_search(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Searches for runs begin when it is set."""
    may_search = threading.Event()
    search = RunTable._search

    def late(table: RunTable) -> None:
        may_search.wait(60)
        search(table)

    monkeypatch.setattr(RunTable, "_search", late)
    return may_search


def test_a_page_waits_for_a_search_that_takes_longer_than_a_page(
    sick: Path, may_search: threading.Event
) -> None:
    test = drawn_until(page_test("rollouts", sick), "Searching for runs")
    assert "Choose a run" not in text_of(test)
    may_search.set()
    drawn_until(test, _ALL_READ)


def test_a_link_to_a_comparison_survives_a_long_search(
    sick: Path, may_search: threading.Event
) -> None:
    page = page_test("compare", sick, FIXTURE, runs=f"{sick.name};{FIXTURE.name}")
    test = drawn_until(page, "Searching for runs")
    may_search.set()
    drawn_until(test, "Verdicts")
    assert test.multiselect[0].value == [sick.name, FIXTURE.name]


def test_a_finding_has_evidence_remedies_and_its_rule(sick: Path) -> None:
    problem = replay(sick).report.diagnosis.problems[0]
    test = drawn_until(page_test("finding", sick), problem.cause.name)
    assert not test.exception
    assert not test.error
    said = text_of(test)
    assert problem.cause.evidence[0].metric in said
    assert problem.symptoms
    assert all(symptom.finding.code in said for symptom in problem.symptoms)
    assert markdown(problem.confirm) in said
    assert "What it sees" in said
    assert "Thresholds" in said


def test_a_link_chooses_the_finding_whatever_its_onset_is_now(sick: Path) -> None:
    test = drawn_until(page_test("finding", sick, finding="MIS001-0"), "engine-mismatch")
    assert "correction.kind=tis_token" in {each.value for each in test.code}
    tested = next(t for t in all_trials().values() for r in t.remedies if r.remedy == "tis")
    assert f"`grpodoctor trial {tested.name}`" in text_of(test)


def test_remedies_are_written_for_the_chosen_framework(sick: Path) -> None:
    test = drawn_until(
        page_test("finding", sick, finding="MIS001-0", framework="verl"), "engine-mismatch"
    )
    assert "algorithm.rollout_correction.rollout_is=token" in "\n".join(
        each.value for each in test.code
    )


def test_a_finding_that_the_run_does_not_have_is_said_in_place(sick: Path) -> None:
    test = drawn_until(page_test("finding", sick, finding="KLD001-3"), "no such finding")
    assert not test.exception
    assert not test.error


@pytest.mark.parametrize("page", ["overview", "finding"])
def test_a_finding_without_evidence_is_shown(
    sick: Path, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = property(lambda _: (), lambda _, __: None)
    monkeypatch.setattr(Finding, "evidence", none)
    test = drawn_until(page_test(page, sick, run=sick.name), "MIS001")
    assert not test.exception
    assert not test.error


def test_two_runs_are_compared(sick: Path, tmp_path: Path) -> None:
    healthy = record_run(tmp_path / "healthy", 80, seed=8)
    test = drawn_until(page_test("compare", sick, healthy, runs="sick;healthy"), "They diverge")
    assert not test.exception
    said = text_of(test)
    assert "| seed | 7 | 8 |" in said.replace("`", "")
    assert "first in" in said


@pytest.mark.slow
def test_any_metric_of_the_run_is_drawn_on_request(sick: Path) -> None:
    page = page_test("overview", sick, run=sick.name, metrics="ratio/max;kl/old_policy/k3")
    test = drawn_until(page, _ALL_READ)
    assert not test.exception
    (chosen,) = test.multiselect
    assert chosen.value == ["ratio/max"]  # the other one has a chart of its own
    assert "optimizer/loss_tokens" in chosen.options
    chosen.select("optimizer/loss_tokens").run()
    assert not test.exception
    (chart,) = test.get("plotly_chart")
    figure = json.loads(chart.proto.spec)
    drawn = {trace.get("meta", {}).get("metric") for trace in figure["data"]}
    assert "selected steps" not in {shape.get("name") for shape in figure["layout"]["shapes"]}
    assert {"ratio/max", "optimizer/loss_tokens"} <= drawn
    assert "ratio/max;optimizer/loss_tokens" in test.query_params["metrics"]


def test_a_key_without_a_metric_is_drawn_as_logged() -> None:
    log = FIXTURE.parent / "logs" / "arvindcr4_metrics.jsonl.gz"
    test = drawn_until(page_test("overview", log, metrics="logged/env/all/format"), "step 99")
    assert not test.exception
    (chart,) = test.get("plotly_chart")
    figure = json.loads(chart.proto.spec)
    (curve,) = [
        trace for trace in figure["data"] if trace["meta"].get("metric") == "logged/env/all/format"
    ]
    assert len(numbers(curve["y"])) == 100
    titles = [note["text"] for note in figure["layout"]["annotations"]]
    assert "<b>env/all/format (as logged)</b>" in titles
    assert "time/train (as logged)" in test.multiselect[0].options


def _in_ten_seconds_a_step(run: Path, path: Path) -> Path:
    """A copy of a run whose steps took longer than those of a test."""
    shutil.copytree(run, path)
    steps = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    lines = [json.dumps({**each, "time": 1.8e9 + 10 * each["step"]}) for each in steps]
    (path / "steps.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.slow
def test_curves_are_smoothed_and_steps_have_times(sick: Path, tmp_path: Path) -> None:
    slow = _in_ten_seconds_a_step(sick, tmp_path / "slow")
    test = drawn_until(page_test("overview", slow, run=slow.name, smooth="10"), _ALL_READ)
    test.toggle(key="axis-of-time").set_value(True).run()
    assert not test.exception
    assert "time" in test.query_params["axis"]
    (chart,) = test.get("plotly_chart")
    figure = json.loads(chart.proto.spec)
    means = {trace["meta"]["mean_of"] for trace in figure["data"] if "mean_of" in trace["meta"]}
    assert "reward/mean" in means
    assert figure["layout"]["xaxis"]["title"]["text"] == "time (UTC)"
    ticks = figure["layout"]["xaxis"]["ticktext"]
    assert len(ticks) >= 2
    assert all(re.match(r"\d\d:\d\d", each) for each in ticks)


def numbers(values: dict[str, str]) -> list[float]:
    """The entries of an array in a figure."""
    return list(np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"]))


def test_the_settings_of_the_run_are_on_the_overview(sick: Path) -> None:
    test = drawn_until(page_test("overview", sick, run=sick.name), _ALL_READ)
    (table,) = [each.value for each in test.dataframe if "Setting" in each.value.columns]
    settings = dict(zip(table["Setting"], table["Value"], strict=True))
    assert settings["clip_high"] == "0.2"
    assert settings["seed"] == "7"


def test_the_catalog_finds_a_remedy_by_the_setting_of_a_framework() -> None:
    test = page_test("catalog", FIXTURE)
    test.segmented_control(key="catalog-kind").set_value("remedy").run()
    test.text_input(key="catalog-search").set_value("epsilon_high").run()
    assert not test.exception
    assert "clip-higher" in set(test.dataframe[0].value["Remedy"])


def test_an_address_opens_a_page_of_the_catalog() -> None:
    test = page_test("catalog", FIXTURE, rule="GRP001")
    assert not test.exception
    assert "all-correct-groups" in test.subheader[0].value


def test_a_run_without_treatments_says_how_to_treat_it(sick: Path) -> None:
    test = drawn_until(page_test("treatment", sick), "not been treated")
    assert "watch RUN --apply safe" in test.info[0].value
    assert not test.exception


def test_an_unknown_run_is_one_clear_line(sick: Path) -> None:
    test = page_test("overview", sick, run="../../etc")
    assert not test.exception
    assert "no run of this name" in test.error[0].value


@pytest.fixture
def live(tmp_path: Path) -> Path:
    return record_run(tmp_path / "live", 60, sick_from=30, finished=False)


def test_a_reader_approves_a_treatment_only_where_that_is_allowed(live: Path) -> None:
    test = drawn_until(page_test("treatment", live), "not been treated")
    assert "Approve" not in [button.label for button in test.button]
    test = drawn_until(page_test("treatment", live, allow_treatment=True), "After approval")
    assert "explains REW002, but no remedy of it can be applied" in text_of(test)
    next(button for button in test.button if button.label == "Approve").click().run()
    assert not test.exception
    assert not test.error
    sent = [file.read_text() for file in (live / "mailbox").glob("*.json")]
    assert any('"kind":"apply"' in request for request in sent)

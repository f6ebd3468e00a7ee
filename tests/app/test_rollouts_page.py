"""The page Rollouts in Streamlit's AppTest."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.runs.rollouts import write_rollouts

pytest.importorskip("streamlit")

from streamlit.testing.v1 import AppTest

from tests.app.page_script import run_page, text_of
from tests.report.simulated import HOSTILE, record_run, rollouts


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _with_rollouts(record_run(tmp_path_factory.mktemp("runs") / "sick", 41, sick_from=15))


def _with_rollouts(run: Path) -> Path:
    """Write the rollouts again: the recorder drops some if the machine is too slow."""
    for step in (0, 20, 40):
        write_rollouts(run, rollouts(step))
    return run


def table(test: AppTest) -> dict[str, list[object]]:
    (frame,) = [each for each in test.dataframe if "Sequence" in each.value.columns]
    return frame.value.to_dict(orient="list")


def test_all_responses_are_listed_with_their_texts(run: Path) -> None:
    test = run_page("rollouts", run)
    assert not test.exception
    shown = table(test)
    assert set(shown["Step"]) == {0, 20, 40}
    assert len(shown["Sequence"]) == 24
    assert shown["Response"][0] == "7*3=21 #1$ (0)"
    assert "1 to 24 of 24 responses" in text_of(test)


def test_filters_and_order_change_the_list(run: Path) -> None:
    test = run_page("rollouts", run)
    test.selectbox(key="rollouts-correct").set_value("Yes")
    test.selectbox(key="rollouts-order").set_value("prob_diff_max")
    test.toggle(key="rollouts-descending").set_value(True)
    test.run()
    assert not test.exception
    shown = table(test)
    assert 0 < len(shown["Correct"]) < 24
    assert set(shown["Correct"]) == {True}
    assert shown["Largest |Δp|"] == sorted(shown["Largest |Δp|"], reverse=True)
    test.text_input(key="rollouts-text").set_value("no such text").run()
    assert "No response matches the filters." in text_of(test)
    assert not test.exception


def test_the_selected_interval_limits_the_list(run: Path) -> None:
    assert set(table(run_page("rollouts", run, steps="10-30"))["Step"]) == {20}


def test_an_address_opens_a_response_with_its_tokens_and_group(tmp_path: Path) -> None:
    run = _recorded_in_full(tmp_path / "run")
    test = run_page("rollouts", run, sequence="step-0/seq-3", step="0")
    assert not test.exception
    text = text_of(test)
    assert "step-0/seq-3" in text
    assert "7*3=21 #1$ (3)" in text
    assert "<mark>" in text
    assert "|Δp|" in text
    coloring = test.selectbox(key="rollouts-coloring")
    assert coloring.options == ["Mismatch |Δp|", "Ratio learner/sampler"]
    coloring.select_index(1).run()
    assert not test.exception
    assert "a factor of two" in text_of(test)


def test_a_response_that_was_not_recorded_is_named(run: Path) -> None:
    test = run_page("rollouts", run, sequence="step-7/<script>alert(1)</script>")
    assert not test.exception
    assert "is not on disk" in text_of(test)


@pytest.mark.slow
def test_a_run_without_responses_says_how_to_record_them(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run", 12)
    for file in (run / "rollouts").iterdir():
        file.unlink()
    test = run_page("rollouts", run)
    assert not test.exception
    assert "no responses on disk" in text_of(test)


@pytest.mark.slow
def test_a_broken_file_costs_its_responses_only(tmp_path: Path) -> None:
    run = _with_rollouts(record_run(tmp_path / "run", 41))
    (run / "rollouts" / "step-000020.rank-0.parquet").write_bytes(b"PAR1 no")
    test = run_page("rollouts", run)
    assert not test.exception
    assert set(table(test)["Step"]) == {0, 40}
    assert "step-000020" in text_of(test)


def test_hostile_text_is_shown_as_text(tmp_path: Path) -> None:
    run = _recorded_in_full(tmp_path / "run", text=HOSTILE)
    test = run_page("rollouts", run, sequence="step-0/seq-1", step="0")
    assert not test.exception
    html = "\n".join(str(element.proto) for element in test.get("html"))
    assert "alert(1)" in html
    assert "<script" not in html
    assert "<img" not in html
    assert "\x1b" not in text_of(test)


def _recorded_in_full(path: Path, text: str = "7*3=21 #1$") -> Path:
    record_run(path, 12, text=text)
    write_rollouts(path, rollouts(0, text), depth="full")
    return path

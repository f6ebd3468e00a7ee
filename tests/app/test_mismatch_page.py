"""The pages Mismatch and Experts in Streamlit's AppTest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("streamlit")

from grpodoctor.probe.results.results_json import write_result
from grpodoctor.runs.rollouts import write_rollouts
from tests.app.page_script import page_test, run_page, text_of
from tests.report import probed
from tests.report.simulated import record_run, rollouts

MIXTURE = Path(__file__).parents[1] / "rules" / "data" / "healthy_mixture.jsonl"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = record_run(tmp_path_factory.mktemp("runs") / "sick", 41, sick_from=15)
    for step in (0, 20, 40):  # the recorder drops rollouts if the machine is too slow
        write_rollouts(path, rollouts(step), depth="full" if step == 40 else "summary")
    return path


@pytest.fixture
def mixture(tmp_path: Path) -> Path:
    """A run of a mixture of experts, with readings for each layer."""
    path = record_run(tmp_path / "mixture", 2)
    shutil.copy(MIXTURE, path / "steps.jsonl")
    return path


def test_the_mismatch_is_shown_by_run_sequence_and_token(run: Path) -> None:
    test = run_page("mismatch", run)
    assert not test.exception
    text = text_of(test)
    assert "Over the run" in text
    assert "responses have a token that differs by more than 0.5" in text
    assert "48 tokens; the largest difference is" in text
    (worst,) = [each for each in test.dataframe if "Sequence" in each.value.columns]
    gaps = list(worst.value["Largest |Δp|"])
    assert gaps == sorted(gaps, reverse=True)
    assert len(gaps) == 10


def test_a_probe_report_opens_on_the_page(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    write_result(probed.result(), folder / "probe.json")
    test = run_page("mismatch", run, folder)
    assert not test.exception
    chosen = test.selectbox(key="mismatch-probe")
    assert chosen.options == [str(folder / "probe.json")]
    text = text_of(test)
    assert "a gap at which training was observed to suffer" in text
    assert "Mismatch by position in the response" in text
    test.selectbox(key="probe-pair").select_index(1).run()
    assert not test.exception


def test_a_folder_with_only_a_probe_report_opens(tmp_path: Path) -> None:
    write_result(probed.result(), tmp_path / "probe.json")
    test = page_test("mismatch", tmp_path)
    assert not test.exception
    assert not test.info
    assert "a gap at which training was observed to suffer" in text_of(test)


def test_a_damaged_probe_report_costs_its_tab_only(run: Path, tmp_path: Path) -> None:
    (tmp_path / "probe.json").write_text("{not json")
    test = run_page("mismatch", run, tmp_path)
    assert not test.exception
    assert "probe.json" in "\n".join(error.value for error in test.error)
    assert "Over the run" in text_of(test)


def test_without_log_probabilities_the_page_says_what_to_log(mixture: Path) -> None:
    shutil.rmtree(mixture / "rollouts")
    steps = mixture / "steps.jsonl"
    steps.write_text('{"step":1,"values":{"reward/mean":{"mean":[1,1]}},"time":0}\n' * 1)
    test = run_page("mismatch", mixture)
    assert not test.exception
    assert "grpodoctor probe" in text_of(test)


def test_layers_are_shown_as_heat_maps(mixture: Path) -> None:
    test = run_page("experts", mixture)
    assert not test.exception
    text = text_of(test)
    assert "Experts that change with the update" in text
    assert "Load of the busiest expert over the mean load" in text
    assert "Highest:" in text
    assert "in layer" in text
    assert len(test.get("plotly_chart")) >= 4


def test_a_dense_model_has_no_experts(run: Path) -> None:
    test = run_page("experts", run)
    assert not test.exception
    assert "nothing about experts by layer" in text_of(test)

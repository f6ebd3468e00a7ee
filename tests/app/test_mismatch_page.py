"""The pages Mismatch and Experts in Streamlit's AppTest."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("streamlit")

from grpodoctor.probe.results.results_json import write_result
from grpodoctor.runs.rollouts import write_rollouts
from tests.app.page_script import drawn_until, page_test, run_page, text_of
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


@pytest.mark.slow
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


def test_without_responses_the_page_names_the_setting(mixture: Path) -> None:
    shutil.rmtree(mixture / "rollouts")
    test = run_page("mismatch", mixture)
    assert not test.exception
    text = text_of(test)
    assert "Over the run" in text
    assert "By sequence" in text
    assert "No responses were recorded. Record them with `record.depth=summary`" in text


@pytest.mark.slow
def test_responses_without_log_probabilities_are_told_from_no_responses(mixture: Path) -> None:
    for file in (mixture / "rollouts").iterdir():
        file.unlink()
    write_rollouts(mixture, replace(rollouts(1), sampler_logprobs_BT=None), depth="full")
    text = text_of(run_page("mismatch", mixture))
    assert "recorded without the log-probabilities of both engines" in text
    assert "`sampler_logprobs`" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "instruction"),
    [("verl", "add rollout_log_probs, old_log_probs and responses"), ("trl", "grpodoctor attach")],
)
def test_a_log_without_dumps_names_what_the_framework_can_dump(
    tmp_path: Path, framework: str, instruction: str
) -> None:
    log = {
        "verl": {"data": {"critic/score/mean": 0.5, "actor/entropy": 0.3, "actor/pg_clipfrac": 0.1,
                          "training/rollout_probs_diff_mean": 0.01}},
        "trl": {"reward": 0.5, "completions/mean_length": 9.0,
                "frac_reward_zero_std": 0.1, "sampling/sampling_logp_difference/mean": 0.01},
    }[framework]  # fmt: skip
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"step": step, **log}) + "\n" for step in range(1, 30)))
    text = text_of(drawn_until(run_page("mismatch", path), "By sequence"))
    assert "No dumped responses were found next to the log." in text
    assert instruction in text


@pytest.mark.slow
def test_vanished_files_are_the_reason(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "runs" / "copy"
    shutil.copytree(run, path)
    test = drawn_until(page_test("mismatch", path.parent, run="runs/copy"), "By token")
    shutil.rmtree(path)
    drawn_until(test, "The files with the responses have vanished, and with them the values")
    assert not test.exception
    assert "Over the run" in text_of(test)
    assert "By token" not in text_of(test)


@pytest.mark.slow
def test_layers_are_shown_as_heat_maps(mixture: Path) -> None:
    test = run_page("experts", mixture)
    assert not test.exception
    text = text_of(test)
    assert "Experts that change with the update" in text
    assert "Load of the busiest expert over the mean load" in text
    assert "Highest:" in text
    assert "in layer" in text
    assert len(test.get("plotly_chart")) >= 4


@pytest.mark.slow
def test_a_dense_model_has_no_experts(run: Path) -> None:
    test = run_page("experts", run)
    assert not test.exception
    assert "nothing about experts by layer" in text_of(test)

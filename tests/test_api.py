"""The public API of the package."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

import grpodoctor
from grpodoctor.errors import ConfigError, RunError
from grpodoctor.runs.recording.recorder import Recorder
from grpodoctor.runs.records import Manifest
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate

HEAVY = ("torch", "pyarrow", "numpy", "scipy", "plotly", "transformers", "pydantic")


@pytest.fixture
def native_run(tmp_path: Path) -> Path:
    with Recorder.open(tmp_path / "run", Manifest(model="m"), depth="off") as recorder:
        for step in range(30):
            recorder.step(step, {"reward/mean": Mean.of([0.5, 0.5]), "accuracy/train": Rate(1, 2)})
        recorder.step(30, {"reward/mean": NotApplicable("no reward")})
    return tmp_path / "run"


@pytest.fixture
def trl_log(tmp_path: Path) -> Path:
    history = [
        {"step": step, "reward": 0.1, "reward_std": 0.0, "frac_reward_zero_std": 1.0, "loss": 0.0,
         "grad_norm": 0.0, "learning_rate": 1e-6, "completions/mean_length": 90.0}
        for step in range(1, 61)
    ]  # fmt: skip
    (tmp_path / "trl").mkdir()
    (tmp_path / "trl" / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    return tmp_path / "trl"


def run_code(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def test_the_import_is_light() -> None:
    code = f"import sys, grpodoctor; print([n for n in {HEAVY} if n in sys.modules])"
    assert run_code(code).stdout.strip() == "[]"


def test_attaching_loads_no_framework() -> None:
    code = "import sys, grpodoctor; grpodoctor.attach(object()); print('torch' in sys.modules)"
    result = run_code(code)
    assert result.stdout.strip() == "False"
    assert "this class is not supported" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_every_public_name_exists_and_is_documented() -> None:
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text()
    for name in grpodoctor.__all__:
        assert getattr(grpodoctor, name) is not None
        assert name.startswith("__") or f"`{name}" in page


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'attatch'"):
        _ = grpodoctor.attatch


def test_a_log_of_a_framework_is_diagnosed(trl_log: Path) -> None:
    report = grpodoctor.check(trl_log)
    assert isinstance(report, grpodoctor.Report)
    assert report.verdict.kind == "sick"
    assert "GRP" in {finding.code[:3] for finding in report.findings}
    assert report.to_json()["verdict"]["kind"] == "sick"
    assert str(report).startswith("SICK")
    assert "Plotly.newPlot" in report.to_html()
    assert grpodoctor.check(trl_log, select=["ENT"]).findings == ()


def test_a_notebook_shows_a_small_page_that_runs_no_script(trl_log: Path) -> None:
    shown = grpodoctor.check(trl_log)._repr_html_()
    assert shown.startswith("<iframe sandbox srcdoc=")
    assert len(shown) < 100_000
    assert "<script" not in shown
    assert "&lt;script" not in shown


def test_hostile_text_stays_inside_the_frame(tmp_path: Path) -> None:
    name = '"><script>alert(1)</script>'
    with Recorder.open(tmp_path / "run", Manifest(model=name), depth="off") as recorder:
        recorder.step(0, {"reward/mean": Mean.of([0.5])})
    shown = grpodoctor.check(tmp_path / "run")._repr_html_()
    assert "<script" not in shown
    assert shown.count('"') == 4  # srcdoc and style


def test_steps_of_any_run_are_a_table(native_run: Path, trl_log: Path) -> None:
    table = grpodoctor.open_run(native_run).steps()
    assert table["step"].to_pylist() == list(range(31))
    assert table["accuracy/train"].to_pylist() == [0.5] * 30 + [None]
    assert table["reward/mean"].to_pylist() == [0.5] * 30 + [None]
    names = ["step", "time", "accuracy/train", "reward/mean", "time/record"]
    assert list(table.to_pandas().columns) == names
    foreign = grpodoctor.open_run(trl_log)
    assert foreign.manifest.framework == "trl"
    assert foreign.steps()["reward/mean"].to_pylist() == [0.1] * 60


def test_a_run_without_responses_says_so(native_run: Path, trl_log: Path) -> None:
    for path in (native_run, trl_log):
        run = grpodoctor.open_run(path)
        assert run.rollout_steps == ()
        with pytest.raises(RunError, match="no responses on disk"):
            run.rollouts()


def test_a_missing_run_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such file or directory"):
        grpodoctor.check(tmp_path / "none")


def test_one_run_of_an_exported_chart_is_chosen(tmp_path):
    log = tmp_path / "chart.csv"
    rows = [f"{step},{0.2 + step / 100},{0.9 - step / 100}" for step in range(40)]
    log.write_text("\n".join(["Step,up - train/reward,down - train/reward", *rows]))
    with pytest.raises(RunError, match="--where run=down"):
        grpodoctor.check(log)
    assert grpodoctor.check(log, where={"run": "down"}).verdict.kind == "sick"
    assert grpodoctor.open_run(log, where={"run": "up"}).records[-1].values[
        "reward/mean"
    ].value == pytest.approx(0.59)


@pytest.mark.parametrize("slope", [0.0, 0.01])
def test_a_flat_run_behind_a_sick_one_says_so(slope, tmp_path):
    log = tmp_path / "log.jsonl"
    noise = random.Random(1)
    rows = [
        {"step": step, "reward": first + rise * step + noise.gauss(0, 0.01)}
        for first, rise in ((0.9, -0.02), (0.9, -0.02), (0.2, slope))
        for step in range(40)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    verdict = grpodoctor.check(log).verdict
    assert verdict.kind == ("healthy" if slope else "flat")
    looks_back = verdict.line.endswith(" Earlier in this log, runs 1 and 2 were sick (REW002).")
    assert looks_back is (not slope)


def test_one_of_two_runs_in_a_log_is_chosen_by_its_number(tmp_path):
    log = tmp_path / "log.jsonl"
    rows = [
        {"step": step, "reward": first + slope * step}
        for first, slope in ((0.9, -0.01), (0.2, 0.01))
        for step in range(40)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    last = grpodoctor.check(log)
    assert last.verdict.kind == "healthy"
    assert "choose another with --where run_number=1" in " ".join(str(last).split())
    assert "run 1, steps 0 to 39: Sick since step" in " ".join(str(last).split())
    (earlier,) = last.data.report.to_json()["earlier_runs"]
    assert (earlier["number"], earlier["first_step"], earlier["last_step"]) == (1, 0, 39)
    first = grpodoctor.check(log, where={"run_number": 1})
    assert (first.verdict.kind, first.data.report.run.steps) == ("sick", 40)
    assert earlier["verdict"] == first.verdict.to_json()
    assert not first.data.report.earlier_runs
    missing = grpodoctor.check(log, where={"run_number": 7})
    assert "there is no run 7: the log contains 2" in " ".join(str(missing).split())
    assert grpodoctor.check(log, where={"run_number": 2}).verdict.line == last.verdict.line
    with pytest.raises(ConfigError, match="count the runs from 1"):
        grpodoctor.check(log, where={"run_number": 0})

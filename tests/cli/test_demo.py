"""The main job, end to end: two real training runs, the live session, the treatment, the report."""

import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from grpodoctor.cli.commands.demo import _introduce
from grpodoctor.monitor.replay import replay
from grpodoctor.runs.reading.native_run import read_run
from tests.samples import sampled

SHORT, LONG = 24, 60
"""On an idle machine the treatment begins at step 8 and is kept at about step 36; a busy one delays
the watcher."""


def _demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grpodoctor", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


@pytest.fixture(scope="module", params=sampled([SHORT, LONG], {SHORT}))
def demo(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str, int]:
    """The directory of a demo, what it printed, and its number of steps."""
    directory = tmp_path_factory.mktemp("demo") / "demo"
    result = _demo("--dir", str(directory), "--steps", str(request.param))
    assert result.returncode == 0, result.stderr
    return directory, result.stdout, request.param


def test_the_fault_is_found_and_treated(demo: tuple[Path, str, int]) -> None:
    directory, _, steps = demo
    events = list(read_run(directory / "treated").events)
    raised = {event.body.get("code") for event in events if event.kind == "finding-raised"}
    assert "MIS002" in raised
    applied = [event for event in events if event.kind == "treatment-applied"]
    assert applied[0].body["after"]["old_logprobs"] == "recompute"
    if steps == LONG:
        assert "treatment-kept" in {event.kind for event in events}


def _applied_at(directory: Path) -> int:
    events = read_run(directory / "treated").events
    return next(event.step for event in events if event.kind == "treatment-applied")


def test_the_treatment_reaches_the_training(demo: tuple[Path, str, int]) -> None:
    directory, _, steps = demo
    treated, untreated = (
        {record.step: record.values for record in read_run(directory / arm).steps}
        for arm in ("treated", "untreated")
    )
    assert max(treated) == max(untreated) == steps
    reached = [_applied_at(directory)]
    if steps == LONG:  # at the end of the short demo, the treatment is still tried on and off
        reached.append(steps)
    for step in reached:
        assert treated[step]["mismatch/first_ratio_off"].value == 0
        assert untreated[step]["mismatch/first_ratio_off"].value > 0.1


def test_the_twins_are_the_same_run_until_the_treatment(demo: tuple[Path, str, int]) -> None:
    directory, *_ = demo
    applied = _applied_at(directory)
    courses = [
        [(record.step, record.values["reward/mean"]) for record in read_run(directory / arm).steps]
        for arm in ("treated", "untreated")
    ]
    assert courses[0][: applied - 1] == courses[1][: applied - 1]
    assert courses[0] != courses[1]


def test_it_ends_with_a_verdict_and_a_report_of_both_runs(demo: tuple[Path, str, int]) -> None:
    directory, output, _ = demo
    assert "The treatment " in output
    report = replay(directory / "treated").report
    summary = output[output.index(report.diagnosis.verdict.line) :].splitlines()
    assert summary[1].startswith("grpodoctor · ")
    assert summary[2].split()[1] == report.findings[0].code
    page = (directory / "report.html").read_text(encoding="utf-8")
    assert "untreated twin" in page
    assert "recompute-old-logprobs" in page


def test_a_taken_directory_is_left_alone(demo: tuple[Path, str, int]) -> None:
    directory, *_ = demo
    before = (directory / "treated" / "steps.jsonl").read_bytes()
    result = _demo("--dir", str(directory))
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "--again" in result.stderr
    assert (directory / "treated" / "steps.jsonl").read_bytes() == before


def test_again_removes_only_demo_directories(tmp_path: Path) -> None:
    (tmp_path / "treated").mkdir()
    (tmp_path / "treated" / "thesis.txt").write_text("years of work")
    result = _demo("--dir", str(tmp_path), "--again")
    assert result.returncode == 2
    assert (tmp_path / "treated" / "thesis.txt").exists()


@pytest.mark.parametrize("parent", ["/proc", "a-file"])
def test_an_unwritable_directory_is_one_line(parent: str, tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("not a directory")
    directory = tmp_path / parent / "demo"
    result = _demo("--dir", str(directory))
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "cannot be written" in result.stderr
    assert str(directory) in result.stderr


@pytest.mark.parametrize("cached", [True, False])
def test_the_output_states_whether_the_warm_start_is_cached(
    cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grpodoctor.trainer.model import policy

    loaded: list[object] = []
    monkeypatch.setattr(policy, "is_warm_start_cached", lambda *_: cached)
    monkeypatch.setattr(policy, "load_policy", lambda *_: loaded.append(1))
    console = Console(file=StringIO(), soft_wrap=True)
    _introduce(console, seed=0)
    output = console.file.getvalue()
    assert ("(cached)" in output) == cached
    assert ("Warm-starting" in output) == ("Warm start done" in output) == bool(loaded) != cached

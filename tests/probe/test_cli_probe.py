import json
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from grpodoctor.cli.commands import probe as command
from grpodoctor.probe.engines.engine_run import EngineProgress
from grpodoctor.probe.results.results_json import read_result
from grpodoctor.runs.records import STEPS, StepRecord
from grpodoctor.vocabulary.values import Mean
from tests.cli.in_process import run
from tests.runs.rollout_dumps import samples
from tests.samples import sampled

ENGINE = Path(__file__).with_name("fault_engine.py")
SMALL = ("--limit", "6", "--samples", "2", "--max-tokens", "8", "--no-attribution")


def spec(**options: object) -> str:
    query = "".join(f"&{name}={value}" for name, value in options.items())
    return f"program:{ENGINE}?model=bigram{query}"


def probe(*arguments: object, output: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in this process; its engines are programs."""
    return run("probe", "--output", output, *arguments)


def pair(sampler: str, learner: str, output: Path, *more: object):
    return probe("--sampler", sampler, "--learner", learner, *SMALL, *more, output=output)


def launches(output: Path) -> int:
    return len(list((output / "logs").glob("*.log")))


def test_engines_that_agree(tmp_path: Path) -> None:
    done = pair(spec(), spec(), tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "all log-probabilities are bit-identical" in " ".join(done.stdout.split())
    assert "<html" in (tmp_path / "out" / "probe.html").read_text()
    (cell,) = read_result(tmp_path / "out" / "probe.json").cells
    outcomes = {control.name: control.passed for control in cell.controls}
    assert outcomes == {
        "self_scoring": True, "repeat": True, "same_weights": None, "stale_weights": True,
    }  # fmt: skip


def test_a_gap_sets_the_exit_code_by_its_severity(tmp_path: Path) -> None:
    far = spec(shift=0.05)
    done = pair(spec(), far, tmp_path / "out", "--output-format", "json", "--framework", "verl")
    assert done.returncode == 1, done.stderr
    (cell,) = json.loads(done.stdout)["cells"]
    (weights,) = cell["settings"]
    assert "algorithm.rollout_correction.rollout_is_threshold=2" in weights["lines"]
    assert "differ by more than rounding" in cell["verdict"]
    before = launches(tmp_path / "out")
    again = pair(spec(), far, tmp_path / "out", "--fail-on", "critical")
    assert again.returncode == 0
    assert launches(tmp_path / "out") == before, "a finished pair is measured again"


def test_a_broken_engine_fails_only_its_own_pairs(tmp_path: Path) -> None:
    arguments = ["--sampler", spec(), "--sampler", spec(fault="die", at="sample")]
    arguments += ["--learner", spec(), "--learner", spec(fault="raise", at="score")]
    done = probe(*arguments, *SMALL, output=tmp_path / "out")
    assert done.returncode == 2
    assert "ValueError: no such kernel" in done.stderr
    assert "killed by SIGKILL" in done.stderr
    assert "Traceback (most" not in done.stderr
    cells = read_result(tmp_path / "out" / "probe.json").cells
    assert [cell.status for cell in cells] == ["done", "failed", "failed", "failed"]
    assert "1 pair measured, 3 failed" in done.stdout


def test_an_engine_that_cannot_start_fails_before_others_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    missing = spec(python="/nowhere/python")
    done = pair(spec(), missing, out)
    assert done.returncode == 2
    assert "there is no Python interpreter /nowhere/python" in done.stderr
    assert launches(out) == 0, "a sampler ran for a learner that cannot start"
    assert "forecast" not in done.stderr
    assert not done.stdout, "a report of no measurement"
    arguments = ["--sampler", spec(), "--sampler", missing, "--learner", spec()]
    grid = probe(*arguments, *SMALL, output=out)
    assert grid.returncode == 2
    assert grid.stderr.index("error: ") < grid.stderr.index("forecast: ")
    cells = read_result(out / "probe.json").cells
    assert [cell.status for cell in cells] == ["done", "failed"]


@pytest.mark.slow
def test_different_vocabularies(tmp_path: Path) -> None:
    done = pair(spec(), spec(vocabulary=8, fault="raise", at="score"), tmp_path / "out")
    assert done.returncode == 2
    assert "their vocabularies differ" in done.stderr
    padded = pair(spec(), spec(vocabulary=40), tmp_path / "out")
    assert padded.returncode == 0
    assert "has 32 tokens and" in padded.stdout


@pytest.mark.slow
def test_prompts_longer_than_the_context(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("short\n" + "long " * 200 + "\n")
    out = tmp_path / "out"
    done = pair(spec(), spec(), out, "--prompts", prompts)
    assert done.returncode == 0, done.stderr
    assert "1 of 2 prompts are longer than the context" in " ".join(done.stdout.split())
    assert read_result(out / "probe.json").settings["prompts"] == 1
    before = launches(out)
    prompts.write_text("short\nshort, too\n")
    pair(spec(), spec(), tmp_path / "short", "--prompts", prompts)
    assert before == launches(tmp_path / "short"), "the sampler was loaded again"
    prompts.write_text("short\n" + "long " * 200 + "\n")
    again = pair(spec(), spec(), out, "--prompts", prompts)
    assert again.returncode == 0
    assert launches(out) == before, "prompts were tokenized again"
    arguments = ["--sampler", spec(), "--sampler", spec(context=4), "--learner", spec()]
    none = probe(*arguments, *SMALL, "--prompts", prompts, output=out)
    assert none.returncode == 2
    assert "1 of 1 prompts are longer" in none.stderr
    assert [cell.status for cell in read_result(out / "probe.json").cells] == ["done", "failed"]


def test_a_grid(tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(
        f"model = {str(ENGINE)!r}\nlimit = 4\nattribution = false\n"
        "[sampling]\nsamples = 2\nmax_tokens = [4, 8]\n"
        '[[sampler]]\nengine = "program"\noptions = { model = "x", seed = [0, 1] }\n'
        '[[learner]]\nengine = "program"\noptions = { model = "x" }\n'
    )
    done = probe(grid, output=tmp_path / "out")
    assert done.returncode == 1, done.stderr
    cells = read_result(tmp_path / "out" / "probe.json").cells
    assert [(cell.max_tokens, cell.status) for cell in cells] == [
        (4, "done"), (4, "done"), (8, "done"), (8, "done"),
    ]  # fmt: skip
    assert launches(tmp_path / "out") == 4, (
        "expected each engine once, and one learner with wrong weights"
    )
    both = probe(grid, "--limit", 3, output=tmp_path / "out")
    assert both.returncode == 2
    assert "a grid file and --limit cannot be combined" in both.stderr


def test_measured_pairs_are_kept_when_the_budget_ends(tmp_path: Path) -> None:
    hanging = spec(fault="hang", at="score")
    arguments = ["--sampler", spec(), "--learner", spec(seed=1), "--learner", hanging]
    done = probe(*arguments, *SMALL, "--budget", "20", output=tmp_path / "out")
    assert done.returncode == 1, done.stderr
    cells = read_result(tmp_path / "out" / "probe.json").cells
    assert [cell.status for cell in cells] == ["done", "not_run"]
    assert "the time budget was spent" in cells[1].reason
    assert "resume with the same command" in done.stderr
    nothing = pair(hanging, hanging, tmp_path / "other", "--budget", "0.01")
    assert nothing.returncode == 2
    assert "no pair was measured" in nothing.stderr


@pytest.mark.parametrize("number", sampled([signal.SIGINT, signal.SIGTERM], {signal.SIGTERM}))
def test_measured_pairs_are_kept_after_an_interrupt(tmp_path: Path, number: int) -> None:
    out = tmp_path / "out"
    arguments = ["--sampler", spec(), "--learner", spec(), "--learner", spec(fault="hang")]
    command = [sys.executable, "-m", "grpodoctor", "probe", *arguments, *SMALL, "--output", out]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (out / "probe.json").exists() or read_result(out / "probe.json").seconds == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(number)
    _, stderr = running.communicate(timeout=60)
    assert running.returncode == 130, stderr
    assert "1 of 2 pairs was measured; resume with" in stderr
    assert read_result(out / "probe.json").cells[0].status == "done"
    assert not _alive(out)


@pytest.mark.slow
def test_nohup_survives_a_hangup(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["--sampler", spec(), "--learner", spec(fault="hang", timeout=1.5), *SMALL]
    command = [sys.executable, "-m", "grpodoctor", "probe", *arguments, "--output", out]
    running = subprocess.Popen(
        ["/usr/bin/env", "nohup", *command], stderr=subprocess.PIPE, stdout=-1, text=True
    )
    deadline = time.monotonic() + 60
    while launches(out) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(signal.SIGHUP)
    _, stderr = running.communicate(timeout=60)
    assert running.returncode == 2
    assert "gave no sign of life" in stderr


@pytest.mark.slow
def test_the_report_is_written_if_stdout_is_closed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "grpodoctor", "probe", "--output", out]
    command += ["--sampler", spec(), "--learner", spec(), *SMALL]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    running.stdout.close()
    assert running.wait(120) == 141
    assert "<html" in (out / "probe.html").read_text()


def _alive(out: Path) -> list[str]:
    mark = f"GRPODOCTOR_PROBE={out}".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += [str(environ)] if mark in environ.read_bytes().split(b"\0") else []
        except OSError:
            continue
    return found


BAD = {
    "no engine": (["--sampler", "sglang:m", "--learner", "vllm:m"], "start with a known engine"),
    "no learner": (["--sampler", "vllm:m"], "--learner is missing"),
    "not a Python": (
        ["--sampler", "vllm:m?python=/nowhere/python", "--learner", "vllm:m"],
        "there is no Python interpreter /nowhere/python",
    ),
    "no prompts": (
        ["--sampler", spec(), "--learner", spec(), "--prompts", "/nowhere.txt"],
        "the prompts cannot be read",
    ),
    "out of bounds": (
        ["--sampler", spec(), "--learner", spec(), "--temperature", "0"],
        "sampling.temperature cannot be",
    ),
    "no framework": (
        ["--sampler", spec(), "--learner", spec(), "--framework", "nobody"],
        "unknown framework 'nobody'",
    ),
    "no run": (
        ["--sampler", spec(), "--learner", spec(), "--attach", "/nowhere/run"],
        "no such file or directory (/nowhere/run); check --attach",
    ),
    "no older checkpoint": (
        ["--sampler", spec(), "--learner", spec(), "--stale", "/nowhere/old"],
        "stale cannot be '/nowhere/old': the checkpoint does not exist",
    ),
    "misspelt option": (
        ["--sampler", "transformers:m?dtyp=float32", "--learner", spec()],
        "unknown transformers option 'dtyp' (transformers:m); did you mean dtype?",
    ),
    "no folder": (
        ["--sampler", spec(), "--learner", spec(), "--output", "/proc/probe"],
        "the folder cannot be used",
    ),
    "no grid": (["/nowhere.toml"], "the grid file cannot be read"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(tmp_path: Path, case: str) -> None:
    arguments, message = BAD[case]
    done = probe(*arguments, output=tmp_path / "out")
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("error: ") == done.stderr.count("error") == 1
    assert not list(tmp_path.glob("out/logs/*.log")), "an engine was started"


def test_attach_does_not_hide_why_an_engine_failed(tmp_path: Path) -> None:
    done = pair(spec(fault="raise"), spec(), tmp_path / "out", "--attach", tmp_path)
    assert done.returncode == 2
    assert "ValueError: no such kernel" in done.stderr
    assert not (tmp_path / "probe").exists()


def test_an_engine_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The base interpreter of this environment has no torch."""
    base = Path(sys.base_prefix) / "bin" / "python3"
    monkeypatch.delenv("PYTHONPATH", raising=False)
    done = pair(f"transformers:m?python={base}", spec(), tmp_path / "out")
    assert done.returncode == 2
    assert "it has no numpy" in done.stderr or "it has no package torch" in done.stderr


def test_a_result_is_attached_to_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    records = (StepRecord(step, {"reward/mean": Mean(5, 10)}) for step in range(12))
    (folder / STEPS).write_bytes(b"".join(record.to_line() for record in records))
    done = pair(spec(), spec(seed=1), tmp_path / "out", "--attach", folder)
    assert done.returncode == 1, done.stderr
    assert "to the run" in done.stderr
    report = json.loads(run("check", folder, "--output-format", "json").stdout)
    assert "MIS001" in {finding["code"] for finding in report["findings"]}
    assert any("attached probe of 20" in note for note in report["notes"])


@pytest.mark.slow
def test_the_load_that_measures_the_learner_answers_attribution_too(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = [*SMALL[:-1], "--sampler", spec(), "--learner", spec(shift=0.05)]
    assert probe(*arguments, output=out).returncode == 1
    wanted = defaultdict(list)
    for path in sorted((out / "requests").glob("*.json")):
        request = json.loads(path.read_text())
        if "tasks" in request and request.get("options") == {"shift": 0.05}:
            load = path.name.partition(".")[0]
            wanted[load] += [task.get("want") for task in request["tasks"]]
    measured = [wants for wants in wanted.values() if ["entropy"] in wants]
    assert len(measured) == 1, "the responses are measured in one load"
    assert any("ranks" in want for want in measured[0] if want), "with what the attribution reads"
    (cell,) = read_result(out / "probe.json").cells
    assert cell.causes


@pytest.mark.slow
def test_a_record_has_its_own_prompts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    samples.nemo_rl(run)
    out = tmp_path / "out"
    sides = [f"recorded:{run}?side={side}" for side in ("sampler", "learner")]
    both = ("--sampler", sides[0], "--learner", sides[1])
    done = probe(*both, "--no-attribution", output=out)
    assert done.returncode in (0, 1), done.stderr
    result = read_result(out / "probe.json")
    (cell,) = result.cells
    assert cell.comparison is not None
    assert cell.comparison.responses == samples.RESPONSES
    assert "prompts" not in result.settings
    assert {control.passed for control in cell.controls} == {None}, (
        "a control of a record passed or failed"
    )
    assert "token ids" in cell.comparison.worst[0].prompt_text


def test_a_pipe_gets_a_line_of_progress_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 5.0, 31.0, 40.0, 62.0])  # of the start, and of each update
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    status = command._Status()
    status.stage("vllm:a samples", 0, 2)
    status.stage("vllm:a samples", 0, 2)
    status.engine(EngineProgress("vllm:a", ("samples",), 1, 4, 20.0))
    status.stage("finding why vllm:a and fsdp:a differ", 1, 2)
    assert capsys.readouterr().err.splitlines() == [
        "after 31 s: vllm:a samples; 0 of 2 pairs measured",
        "after 62 s: finding why vllm:a and fsdp:a differ; 1 of 2 pairs measured",
    ]

"""`grpodoctor train`, as a user types it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import chdir
from pathlib import Path

import pytest

from grpodoctor.monitor.replay import replay
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.runs.recording.directory import take_run_lock
from grpodoctor.runs.records import STEPS
from grpodoctor.trainer.model.checkpoint import checkpoints, saved_config
from tests.cli.in_process import run as run_in_process
from tests.forked import GRPODOCTOR, forked
from tests.samples import sampled

SMALL = (
    *("--set", "model.warm_start_steps=30", "--set", "threads=1"),
    *("--set", "rollout.prompts_per_batch=4", "--set", "evaluation.prompts=8"),
)


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in this process."""
    with chdir(cwd):
        return run_in_process("train", *arguments)


def test_it_trains_and_says_what_where_and_how_to_watch(tmp_path: Path) -> None:
    options = ("--steps", "2", "--seed", "3", "--preset", "dapo", *SMALL)
    done = run(*options, "--run-dir", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "preset dapo" in done.stderr
    assert "loss.clip_high=0.28" in done.stderr
    assert "M trainable weights on the CPU" in done.stderr
    assert "grpodoctor watch out" in done.stderr
    assert "2 steps done: out" in done.stderr
    manifest = read_run(tmp_path / "out").manifest
    assert manifest.seed == 3
    assert manifest.knobs["dynamic_sampling"] is True


def test_a_treated_run_ends_with_its_verdict_first(tmp_path: Path) -> None:
    options = ("--steps", "2", "--apply", "safe", *SMALL)
    done = run(*options, "--run-dir", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-2:] == [
        replay(tmp_path / "out").report.diagnosis.verdict.line,
        "2 steps done: out",
    ]


def test_a_rarely_intended_setting_gives_a_note(tmp_path: Path) -> None:
    unusual = ("--set", "loss.kind=gspo", "--set", "loss.clip_high=0.2")
    done = run("--set", "model.name=./nowhere", *unusual, cwd=tmp_path)
    assert "note: CFG001 response-clip-too-wide: The clip of 0.2 never acts" in done.stderr


def test_it_resumes_and_trains_on(tmp_path: Path) -> None:
    first = run("--steps", "2", *SMALL, "--run-dir", "out", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    more = run("--run-dir", "out", "--resume", "--steps", "4", cwd=tmp_path)
    assert more.returncode == 0, more.stderr
    assert [step.step for step in read_run(tmp_path / "out").steps] == [1, 2, 3, 4]
    assert saved_config(tmp_path / "out").rollout.prompts_per_batch == 4
    again = run("--run-dir", "out", "--resume", "--steps", "4", cwd=tmp_path)
    assert (again.returncode, again.stderr.count("\n")) == (0, 1)
    assert "4 steps are already done" in again.stderr


def test_a_file_and_settings_reach_the_run(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("steps = 1\n[loss]\nclip_high = 0.4\nclip_low = 0.3\n")
    options = ("--config", "run.toml", "--set", "loss.clip_low=0.1", *SMALL)
    done = run(*options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run_dir,) = (tmp_path / "runs").iterdir()
    knobs = read_run(run_dir).manifest.knobs
    assert (knobs["clip_high"], knobs["clip_low"]) == (0.4, 0.1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--preset", "dr_gpro"), "did you mean dr_grpo"),
        (("--set", "loss.cliphigh=1"), "did you mean loss.clip_high"),
        (("--config", "missing.toml"), "missing.toml"),
        (("--steps", "0"), "steps cannot be"),
        (("--seed", "1" + "0" * 20), "seed cannot be"),
        (("--set", "threads=100000"), "threads cannot be"),
        (("--set", "task.data=\udcff"), "the settings cannot be saved"),
        (("--resume",), "--run-dir"),
        (("--resume", "--run-dir", "nowhere"), "no checkpoint"),
        (("--set", "model.name=./nowhere"), "no such directory"),
        (("--set", "task.reward=os:getcwd", *SMALL), "error"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    options: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    done = run(*options, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert expected in line
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--preset", "dapoo"),
        ("--set", "optimizer.lr=1"),
        ("--set", "loss.clip_low=2"),
        ("--resume", "--run-dir", "out", "--set", "optimizer.lr=1"),
    ],
)
def test_a_wrong_name_is_refused_without_importing_torch(options: tuple[str, ...]) -> None:
    program = (
        "import sys\n"
        "from grpodoctor.cli.main import main\n"
        f"sys.argv = ['grpodoctor', 'train', *{options!r}]\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 2\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_closed_pipe_ends_the_display_and_not_the_run(tmp_path: Path) -> None:
    options = ("--steps", "3", *SMALL, "--run-dir", "out")
    program = subprocess.Popen(
        [sys.executable, "-c", GRPODOCTOR, "train", *options],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert program.stdout is not None
    assert program.stdout.readline()
    program.stdout.close()
    assert program.wait(timeout=240) == 0
    assert [path.name for path in checkpoints(tmp_path / "out")] == ["step-000003"]
    assert [step.step for step in read_run(tmp_path / "out").steps] == [1, 2, 3]


@pytest.mark.parametrize("recorded", [True, False])
def test_two_trainers_never_share_a_directory(tmp_path: Path, recorded: bool) -> None:
    lock = take_run_lock(tmp_path / "out")
    record = f"record.enabled={str(recorded).lower()}"
    done = run("--steps", "1", *SMALL, "--set", record, "--run-dir", "out", cwd=tmp_path)
    lock.release()
    assert done.returncode == 2
    assert "is already recording here" in done.stderr


@pytest.mark.parametrize(
    "number", sampled([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], {signal.SIGTERM})
)
def test_a_signal_ends_cleanly_with_a_checkpoint(number: signal.Signals, tmp_path: Path) -> None:
    options = ("--steps", "100000", *SMALL, "--run-dir", "out")
    with forked(GRPODOCTOR, "train", *options, cwd=tmp_path) as process:
        deadline = time.monotonic() + 120
        steps = tmp_path / "out" / STEPS
        while time.monotonic() < deadline and not (steps.exists() and steps.stat().st_size):
            assert process.poll() is None, process.stderr
            time.sleep(0.05)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "to continue: grpodoctor train --run-dir out --resume" in stderr
    done = read_run(tmp_path / "out")
    assert list(done.events)[-1].kind == "finished"
    last = max(step.step for step in done.steps)
    assert checkpoints(tmp_path / "out")[-1].name == f"step-{last:06d}"

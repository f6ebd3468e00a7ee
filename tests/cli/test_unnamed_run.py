"""`watch` without a run, and with a process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.in_process import run
from tests.cli.pseudo_terminal import Terminal
from tests.report.simulated import record_run
from tests.runs.reading.test_mixed_runs import written
from tests.runs.test_nearby_runs import RECORD


@pytest.fixture
def two_runs(tmp_path):
    record_run(tmp_path / "healthy", 20)
    record_run(tmp_path / "sick one", 60, sick_from=20)
    return tmp_path


def test_without_a_terminal_the_runs_are_listed_with_commands(two_runs, monkeypatch):
    monkeypatch.chdir(two_runs)
    done = run("watch")
    assert done.returncode == 2
    commands = [line.partition("  #")[0] for line in done.stdout.splitlines()]
    assert set(commands) == {"grpodoctor watch healthy", "grpodoctor watch 'sick one'"}


@pytest.mark.slow
def test_a_run_is_chosen_with_keys(two_runs):
    with Terminal("watch", cwd=two_runs, rows=40, columns=120) as terminal:
        terminal.read_until("healthy")
        terminal.press("/sick")
        terminal.read_until("match")
        terminal.press("\r")  # to the list; until this is handled, the field takes the next one
        terminal.press_until("\r", "REW002")
        terminal.press("q")
        assert terminal.wait() == 1


@pytest.mark.parametrize("name", ["", "logs"])
def test_logs_of_several_runs_in_a_directory_are_a_choice(tmp_path, monkeypatch, name):
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    for number in range(2):
        written(folder / f"train{number}.jsonl", range(1, 31), lambda at, n=number: at / (70 + n))
    monkeypatch.chdir(tmp_path)
    expected = {f"grpodoctor watch {Path(name, f'train{number}.jsonl')}" for number in range(2)}
    for arguments in ((), (str(folder),)):
        done = run("watch", *arguments)
        assert done.returncode == 2
        assert {line.partition("  #")[0] for line in done.stdout.splitlines()} == expected


def test_leaving_the_choice_watches_nothing(two_runs):
    with Terminal("watch", cwd=two_runs) as terminal:
        terminal.read_until("healthy")
        terminal.press("q")
        assert terminal.wait() == 2
        assert "Traceback" not in terminal.text


def test_a_directory_of_runs_is_a_choice(two_runs, monkeypatch):
    done = run("watch", two_runs)
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 2
    monkeypatch.chdir(two_runs.parent)
    listed = run("watch", two_runs, "--once").stdout.splitlines()
    assert any(f"{two_runs.name}/healthy" in line for line in listed)


def test_a_directory_with_one_run_is_that_run(tmp_path):
    record_run(tmp_path / "only", 20)
    done = run("watch", tmp_path, "--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert "finished  step 19" in done.stdout


def test_without_any_run_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("watch")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no run was found")


def test_the_run_of_a_process(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", RECORD, tmp_path / "run"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline()
        done = run("watch", "--pid", process.pid, "--once", "--exit-zero")
        process.kill()
    assert done.returncode == 0, done.stderr
    assert "live  step 0" in done.stdout


def test_a_process_and_a_run_contradict_each_other(tmp_path):
    done = run("watch", tmp_path, "--pid", os.getpid())
    assert done.returncode == 2
    assert "remove one" in done.stderr

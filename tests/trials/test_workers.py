"""Runs in processes: stored, shared, resumed, and named when they die."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from grpodoctor.cli.pages import json_text
from grpodoctor.errors import RunError
from grpodoctor.trainer.model.warm_start import warm_start_kind
from grpodoctor.trials import faults, process_pool, running, workers
from grpodoctor.trials.evidence.collected_evidence import collected
from grpodoctor.trials.evidence.evidence_page import as_json
from grpodoctor.trials.registry import trial_of
from grpodoctor.trials.results import RESULT, Alarm, RunResult, failed
from grpodoctor.trials.running import spec_of
from grpodoctor.trials.trial import CONTROL, DISEASE, Arm
from tests.benchmarks import planted_faults
from tests.cli.in_process import run as grpodoctor

PATIENCE = 120.0


class Counter:
    """A progress that keeps its reports."""

    def __init__(self):
        self.reports = []

    def update(self, completed, *, total=None, detail=None):
        self.reports.append((completed, total, detail))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("trials")


def test_a_trial_from_the_command_line(root):
    options = ("--seeds", "1", "--steps", "4", "--dir", root, "--output-format", "json")
    done = grpodoctor("trial", "reward-constant", *options)
    assert done.returncode == 0, done.stderr
    (data,) = json.loads(done.stdout)["trials"]
    (remedy,) = data["remedies"]
    # The repaired reward is that of the control, and both arms share one run.
    assert remedy["treated"] == remedy["control"]
    assert remedy["gain"]["pairs"] == 1
    assert data["failed"] == []
    assert len(list(root.glob(f"*/*/*/{RESULT}"))) == 2
    again = Counter()
    trial = trial_of("reward-constant")
    specs = [spec_of(trial, arm, 1, 4) for arm in trial.arms]
    results = workers.run_all(specs, root, again)
    assert [report[0] for report in again.reports] == [0, 1, 2]
    assert [each.seconds for each in results] == [
        RunResult.read(root / specs[index].folder / RESULT).seconds for index in (0, 1, 0)
    ]


def test_the_rules_of_today_examine_a_stored_run(root):
    """A rule that has changed since the training must not be judged by its former alarms."""
    spec = spec_of(trial_of("reward-constant"), DISEASE, 1, 4)
    stored = RunResult.read(root / spec.folder / RESULT)
    outdated = replace(stored, alarms=(Alarm("XXX001", "critical", 1, 1),), levels={})
    outdated.write(root / spec.folder)
    (result,) = workers.run_all([spec], root, Counter())
    assert (result.alarms, result.levels) == (stored.alarms, stored.levels)
    assert result.levels


def test_a_run_from_another_warm_start_is_trained_again(root):
    """Its arms would not be pairs with runs that are trained today."""
    spec = spec_of(trial_of("reward-constant"), DISEASE, 1, 4)
    stored = RunResult.read(root / spec.folder / RESULT)
    assert stored.warm_start == warm_start_kind()
    replace(stored, warm_start="of another torch", evaluations=()).write(root / spec.folder)
    (result,) = workers.run_all([spec], root, Counter())
    assert (result.warm_start, result.evaluations) == (stored.warm_start, stored.evaluations)


@pytest.mark.slow
def test_a_process_that_is_killed_is_reported_by_name_and_repeated_later(root, monkeypatch):
    spec = spec_of(trial_of("reward-constant"), CONTROL, 1, 5)
    starter = process_pool._start

    def start_and_kill(*arguments):
        running = starter(*arguments)
        threading.Thread(target=_kill_when_training, args=(running, root), daemon=True).start()
        return running

    monkeypatch.setattr(process_pool, "_start", start_and_kill)
    (result,) = workers.run_all([spec], root, Counter())
    assert (result.status, result.reason) == ("failed", "its process died (ended by SIGKILL)")
    monkeypatch.undo()
    (result,) = workers.run_all([spec], root, Counter())
    assert result.status == "done"
    assert [each.step for each in result.evaluations] == [1, 5]
    assert 0 < result.evaluations[0].passes < result.passes


def _kill_when_training(running, root):
    deadline = time.monotonic() + PATIENCE
    unfinished = (root / running.item.folder).with_name(f"unfinished-{running.item.seed}")
    while not unfinished.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(running.process.pid, signal.SIGKILL)


def test_a_run_whose_weights_become_nan_is_data(tmp_path, monkeypatch):
    trial = replace(trial_of("reward-constant"), disease=Arm(fault="weights_become_nan"))
    monkeypatch.setattr(running, "experiment_of", lambda _: trial)
    monkeypatch.setattr(
        faults, "weights_become_nan", planted_faults.weights_become_nan, raising=False
    )
    monkeypatch.setattr(planted_faults, "DIES_AT", 2)
    spec = spec_of(trial, DISEASE, 1, 5)
    result = running.train(spec, tmp_path)
    assert (result.status, result.reason) == ("done", "")
    assert result.evaluations[0].value > 0.3
    assert result.evaluations[-1].value == 0
    assert result.alarm(["OPT003"]) is not None
    results = [result, *(replace(result, spec=spec_of(trial, arm, 1, 5)) for arm in trial.arms)]
    page = json.loads(json_text(as_json(collected([trial], results))))
    assert page["trials"][0]["remedies"][0]["untreated"] < 0.3


SLEEPER = """
import time
from grpodoctor.trials import process_pool
start = process_pool._start
def announcing(*arguments):
    running = start(*arguments)
    print("started", flush=True)
    return running
process_pool._start = announcing
list(process_pool.in_processes(time.sleep, [3600.0], 1))
"""


def test_a_process_ends_with_its_killed_parent():
    parent = subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout.readline() == "started\n"
        parent.kill()
        # The child has this pipe, too, so its end is the end of the child.
        assert parent.communicate(timeout=PATIENCE) == ("", None)


def test_a_command_that_is_ended_by_a_signal_ends_its_runs(tmp_path):
    options = ("--seeds", "1", "--steps", "100000", "--dir", str(tmp_path))
    command = [sys.executable, "-m", "grpodoctor", "trial", "reward-constant", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + PATIENCE
        while not list(tmp_path.glob("*/*/unfinished-1")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.terminate()
        _, complaint = process.communicate(timeout=PATIENCE)
    kept = f"interrupted; finished runs are kept in {tmp_path}; continue with the same command"
    assert (process.returncode, complaint.strip()) == (130, kept)


def test_an_interrupted_series_holds_whole_trials(tmp_path, monkeypatch):
    """A control that two trials share is trained with the first of them."""
    trials = [trial_of("reward-constant"), trial_of("reward-negated")]
    specs = [spec_of(trial, arm, 1, 4) for trial in trials for arm in (CONTROL, DISEASE)]
    assert specs[0].fingerprint == specs[2].fingerprint
    trained = []

    def train(missing, root, jobs):
        trained.extend(missing)
        yield from (failed(spec, "not trained") for spec in missing)

    monkeypatch.setattr(workers, "_in_processes", train)
    workers.run_all(specs, tmp_path, Counter())
    assert trained == [specs[0], specs[1], specs[3]]


def test_a_run_that_fails_ends_no_other(root):
    trial = trial_of("reward-constant")
    good = spec_of(trial, CONTROL, 1, 4)
    folder = root / good.folder.parent.parent / "disease"
    folder.mkdir(parents=True, exist_ok=True)
    blocked = folder / "unfinished-1"
    blocked.write_text("a file where the run wants its directory")
    bad = spec_of(trial, DISEASE, 1, 3)
    results = workers.run_all([bad, good], root, Counter())
    assert [each.status for each in results] == ["failed", "done"]
    assert results[0].outcome() is None


def test_a_damaged_result_is_one_line(tmp_path):
    folder = tmp_path / "a" / "b" / "seed-1"
    folder.mkdir(parents=True)
    (folder / RESULT).write_text('{"spec": 3}')
    with pytest.raises(RunError, match=r"the result of a trial is damaged .*delete its folder"):
        workers.run_all([], tmp_path, Counter())


def test_bad_input_is_one_line(tmp_path):
    for arguments, words in (
        (("trial", "no-such"), "unknown trial 'no-such'"),
        (("trials", "--seeds", "0"), "--seeds"),
        (("trial", "truncation", "--dir", "/dev/null/x"), "cannot be stored"),
        (("trial", "truncation", "--ray", "127.0.0.1:1", "--dir", tmp_path), "no Ray cluster"),
    ):
        done = grpodoctor(*arguments)
        assert done.returncode == 2, arguments
        assert words in done.stderr
        assert "Traceback" not in done.stderr

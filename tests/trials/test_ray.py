"""Trials on a Ray cluster, which this starts on the machine: the same numbers as in processes."""

import json

import pytest

from grpodoctor.trials.registry import trial_of
from grpodoctor.trials.results import RESULT, RunResult
from grpodoctor.trials.running import spec_of
from tests.cli.in_process import run as grpodoctor

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
"""Starting a cluster and its workers takes a minute, or several on a busy machine."""


def test_ray_trains_what_processes_train(tmp_path):
    pytest.importorskip("ray")
    trial = "reward-constant"
    options = ("--seeds", "1", "--steps", "4", "--output-format", "json")
    evidence, results = [], []
    for name, ray in (("processes", ()), ("ray", ("--ray", "local"))):
        done = grpodoctor("trial", trial, *options, "--dir", tmp_path / name, *ray)
        assert done.returncode == 0, done.stderr
        evidence.append(json.loads(done.stdout))
        specs = {spec_of(trial_of(trial), arm, 1, 4) for arm in ("control", "disease")}
        stored = [RunResult.read(tmp_path / name / spec.folder / RESULT) for spec in specs]
        results.append({each.spec: (each.evaluations, each.alarms) for each in stored})
    assert evidence[0] == evidence[1]
    assert evidence[0]["trials"][0]["failed"] == []
    assert results[0] == results[1]


def test_a_run_that_cannot_be_trained_on_ray_is_named(tmp_path):
    pytest.importorskip("ray")
    folder = tmp_path / "reward-constant" / "disease"
    folder.mkdir(parents=True)
    (folder / "unfinished-1").write_text("a file where the run wants its directory")
    options = ("--seeds", "1", "--steps", "2", "--dir", tmp_path, "--ray", "local")
    done = grpodoctor("trial", "reward-constant", *options)
    assert done.returncode == 1, done.stderr
    assert "No result: reward-constant, disease, seed 1: " in done.stdout
    assert "Incomplete: 1 run without a result" in done.stdout

"""Counts of alarms in healthy runs, from made-up results whose answer is known."""

from dataclasses import replace

import pytest

from grpodoctor.trainer.data.tasks.registry import TASKS
from grpodoctor.trials import healthy_runs
from grpodoctor.trials.evidence.collected_evidence import collected
from grpodoctor.trials.evidence.evidence_page import as_json, markdown, summary
from grpodoctor.trials.evidence.healthy_evidence import rate_interval
from grpodoctor.trials.healthy_runs import HEALTHY
from grpodoctor.trials.registry import trial_of
from grpodoctor.trials.results import Alarm, Evaluation, RunResult, RunSpec, failed
from grpodoctor.trials.running import config_of
from grpodoctor.trials.trial import CONTROL


def run(arm, seed, *alarms):
    spec = RunSpec(HEALTHY.name, arm, seed, 60, f"{arm}-{seed}")
    return RunResult(spec, "done", evaluations=(Evaluation(60, 0.5, 100),), alarms=alarms)


def test_every_built_in_task_is_trained_with_every_variant():
    assert set(healthy_runs.TASKS) == set(TASKS)
    assert len(HEALTHY.arms) == len(TASKS) * 5
    config = config_of(HEALTHY, "sorting gspo", 3)
    assert (config.task.name, config.loss.kind, config.seed) == ("sorting", "gspo", 3)


def test_alarms_are_counted_by_severity():
    warning, critical = Alarm("ENT002", "warning", 9, 4), Alarm("LEN002", "critical", 8, 4)
    note = Alarm("CFG011", "info", 1, 1)
    results = [run(arm, seed) for arm in HEALTHY.arms for seed in (1, 2)]
    results[0] = run("arithmetic grpo", 1, warning, critical, note)
    results[3] = run("arithmetic dapo", 2, warning)
    found = collected([HEALTHY], results)
    total = found.healthy.total
    assert (total.runs, total.steps, total.warnings, total.criticals) == (30, 1800, 2, 1)
    assert found.healthy.alarms == (("ENT002", 2), ("LEN002", 1))
    (line,) = summary(found)
    assert line.startswith(
        "In 30 distinct healthy runs (15 of 15 combinations of task and variant) with 1,800 steps"
    )
    assert "1 critical findings and 2 warnings: 1.11 warnings in 1,000 steps" in line
    assert "| arithmetic grpo | 2 | 120 | 1 | 1 | 0.500 |" in markdown(found)
    assert as_json(found)["healthy_runs"]["seeds"] == 2


def test_controls_that_share_a_run_count_once():
    warning = Alarm("ENT002", "warning", 9, 4)
    names = ("truncation", "small-batch", "narrow-clip")
    results = [
        replace(run("x", 1, warning), spec=RunSpec(name, CONTROL, 1, 60, mark))
        for name, mark in zip(names, ("shared", "shared", "other"), strict=True)
    ]
    controls = collected([trial_of(name) for name in names], results).controls
    assert (controls.runs, controls.steps, controls.warnings) == (2, 120, 2)


def test_a_run_that_failed_is_named_and_not_counted():
    results = [run("arithmetic grpo", 1), failed(run("arithmetic dapo", 1).spec, "it died")]
    found = collected([HEALTHY], results)
    assert found.failed == ["healthy-runs, arithmetic dapo, seed 1: it died"]
    assert found.healthy.total.runs == 1
    assert summary(found)[-1].startswith("Incomplete: 1 run without a result (healthy-runs")


def test_the_interval_of_a_rate():
    """Exact limits of a Poisson count, from the tables of Garwood (1936)."""
    assert rate_interval(0, 1000) == pytest.approx((0, 3.69), abs=0.01)
    assert rate_interval(10, 1000) == pytest.approx((4.80, 18.39), abs=0.01)

from __future__ import annotations

import time
from pathlib import Path

import orjson
import pytest

from grpodoctor.report.replay import replay
from grpodoctor.runs.foreign import ForeignFollower
from grpodoctor.runs.opening import ForeignRun, open_run
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import scalar
from tests.runs.dumps.samples import STEPS, WRITERS, lines, responses, verl


def log(root: Path, steps: tuple[int, ...] = STEPS, **values: float) -> None:
    """verl's file logger, with a reward that is not the dump's."""
    rows = [
        {
            "step": step,
            "data": {
                "actor/pg_loss": 0.1,
                "actor/grad_norm": 1.0 + step / 10,
                "actor/entropy": 0.5,
                "critic/score/mean": 0.9,
                "response_length/mean": 17.0,
                **values,
            },
        }
        for step in steps
    ]
    lines(root / "metrics.jsonl", rows)


def opened(root: Path) -> tuple[ForeignRun, list[StepRecord]]:
    run = open_run(root)
    assert isinstance(run, ForeignRun)
    return run, list(run.steps)


def test_the_dump_fills_in_what_the_log_lacks_and_is_set_beside_what_it_has(tmp_path: Path) -> None:
    log(tmp_path)
    verl(tmp_path)
    run, records = opened(tmp_path)
    assert run.manifest.framework == "verl"
    assert [record.step for record in records] == list(STEPS)
    for record in records:
        assert scalar(record.values["reward/mean"]) == pytest.approx(0.9)
        assert scalar(record.values["reward/mean/recomputed"]) == 6 / 16
        assert scalar(record.values["groups/zero_variance_rate"]) == 0.25
        assert scalar(record.values["length/mean"]) == 17.0
    assert any("rollout dumps: verl rollouts, 48 responses" in note for note in run.notes)


def test_a_log_that_contradicts_its_dump_is_a_finding(tmp_path: Path) -> None:
    steps = tuple(range(1, 9))
    log(tmp_path, steps)
    for step in steps:
        rows = [
            {"input": row["prompt"], "output": row["text"], "gts": "", "score": row["reward"],
             "step": step}
            for _ in range(8) for row in responses(step)
        ]  # fmt: skip
        lines(tmp_path / "rollouts" / f"{step}.jsonl", rows)
    report = replay(tmp_path, select=["INS001"]).report
    (finding,) = report.findings
    assert "reward/mean 0.9" in finding.summary


def test_steps_of_the_dump_between_those_of_the_log_are_steps_too(tmp_path: Path) -> None:
    log(tmp_path, (2,))
    verl(tmp_path)
    _, records = opened(tmp_path)
    assert [record.step for record in records] == [1, 2, 3]
    assert "actor/grad_norm" not in records[0].values
    assert "optimiser/grad_norm" in records[1].values


@pytest.mark.parametrize("name", WRITERS)
def test_a_dump_alone_is_a_run(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path)
    run, records = opened(tmp_path)
    assert run.manifest.framework in name.lower().replace(" ", "-") or name.startswith("ms-swift")
    assert [record.step for record in records] == list(STEPS)


def test_one_file_is_a_run(tmp_path: Path) -> None:
    verl(tmp_path)
    _, records = opened(tmp_path / "rollouts/2.jsonl")
    assert [record.step for record in records] == [2]


def drained(follower: ForeignFollower, until: int) -> list[StepRecord]:
    """Poll as a watcher does until that many steps were given."""
    found: list[StepRecord] = []
    ends = time.monotonic() + 10
    while len(found) < until and time.monotonic() < ends:
        found += follower.poll().steps
        time.sleep(0.02)
    return found


def test_dumps_are_followed_while_they_are_written(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    verl(whole)
    run = tmp_path / "run"
    run.mkdir()
    follower = ForeignFollower(run)
    given: list[StepRecord] = []
    for step in STEPS:
        data = (whole / f"rollouts/{step}.jsonl").read_bytes()
        lines(run / f"rollouts/{step}.jsonl", [])
        (run / f"rollouts/{step}.jsonl").write_bytes(data)
        time.sleep(0.35)  # a trainer learns before it logs
        follower.poll()
        with (run / "metrics.jsonl").open("ab") as file:
            row = {"actor/pg_loss": 0.1, "actor/grad_norm": 1.0, "critic/score/mean": 0.5}
            file.write(orjson.dumps({"step": step, "data": row}) + b"\n")
        given += drained(follower, 1)
    _, offline = opened(whole)
    assert [record.step for record in given] == list(STEPS)
    last = dict(offline[-1].values)
    assert given[-1].values["groups/zero_variance_rate"] == last["groups/zero_variance_rate"]
    assert scalar(given[-1].values["reward/mean/recomputed"]) == 6 / 16

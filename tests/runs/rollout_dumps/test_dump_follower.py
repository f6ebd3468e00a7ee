from __future__ import annotations

import threading
import time
from pathlib import Path

import orjson
import pytest

from grpodoctor.frameworks.rollout_formats.registry import dumps_among
from grpodoctor.monitor.replay import replay
from grpodoctor.report import html
from grpodoctor.report.run.view import view_of
from grpodoctor.runs.reading.framework_follower import FrameworkFollower
from grpodoctor.runs.reading.opening import FrameworkRun, open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.runs.records import StepRecord
from grpodoctor.runs.rollout_dumps import dump_follower, runners
from grpodoctor.runs.rollout_dumps.dump_reader import DumpReader
from grpodoctor.support.files.regular_files import files_below
from grpodoctor.vocabulary.values import scalar
from tests.runs.progress_log import ProgressLog
from tests.runs.rollout_dumps.samples import STEPS, WRITERS, lines, responses, verl


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


def opened(root: Path) -> tuple[FrameworkRun, list[StepRecord]]:
    run = open_run(root)
    assert isinstance(run, FrameworkRun)
    return run, list(run.steps)


def test_the_dump_adds_metrics_that_the_log_lacks_and_recomputes_the_others(tmp_path: Path) -> None:
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
    assert "mean reward is logged as 0.9" in finding.summary


def test_dumped_steps_between_logged_ones_are_steps(tmp_path: Path) -> None:
    log(tmp_path, (2,))
    verl(tmp_path)
    _, records = opened(tmp_path)
    assert [record.step for record in records] == [1, 2, 3]
    assert "actor/grad_norm" not in records[0].values
    assert "optimizer/grad_norm" in records[1].values


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


def drained(follower: FrameworkFollower, until: int) -> list[StepRecord]:
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
    follower = FrameworkFollower(run)
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


def line(root: Path, step: int) -> None:
    with (root / "metrics.jsonl").open("ab") as file:
        row = {"actor/pg_loss": 0.1, "actor/grad_norm": 1.0, "critic/score/mean": 0.5}
        file.write(orjson.dumps({"step": step, "data": row}) + b"\n")


def zero_variance(records: list[StepRecord]) -> list[int]:
    """The steps that know what only the dump tells."""
    return [each.step for each in records if "groups/zero_variance_rate" in each.values]


def test_a_step_waits_for_a_dump_that_is_written_after_its_line(tmp_path: Path) -> None:
    """verl writes its dumps from a thread of their own."""
    whole, run = tmp_path / "whole", tmp_path / "run"
    verl(whole)
    (run / "rollouts").mkdir(parents=True)
    follower, given = FrameworkFollower(run), list[StepRecord]()
    for step in STEPS:
        data = (whole / f"rollouts/{step}.jsonl").read_bytes()
        if step == 1:
            (run / "rollouts/1.jsonl").write_bytes(data)
        line(run, step)
        given += follower.poll().steps
        (run / f"rollouts/{step}.jsonl").write_bytes(data[:3000])
        given += follower.poll().steps
        (run / f"rollouts/{step}.jsonl").write_bytes(data)
        given += drained(follower, 1)
    assert zero_variance(given) == list(STEPS)
    assert given == opened_again(run)


def opened_again(root: Path) -> list[StepRecord]:
    return opened(root)[1]


def test_a_backlog_waits_for_all_its_dumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verl(tmp_path)
    for step in STEPS:
        line(tmp_path, step)
    monkeypatch.setattr(dump_follower, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(dump_follower, "_POLL_SECONDS", 0.0)
    given = drained(FrameworkFollower(tmp_path), 3)
    assert zero_variance(given) == list(STEPS)


def test_a_late_dump_is_reported_and_read_by_check(tmp_path: Path) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    verl(whole)
    (run / "rollouts").mkdir(parents=True)
    for step in STEPS:
        line(run, step)
    follower = FrameworkFollower(run)
    assert zero_variance(drained(follower, 3)) == []
    for step in STEPS:
        data = (whole / f"rollouts/{step}.jsonl").read_bytes()
        (run / f"rollouts/{step}.jsonl").write_bytes(data)
    notes = list[str]()
    ends = time.monotonic() + 10
    while not notes and time.monotonic() < ends:
        poll = follower.poll()
        notes += [each for each in poll.notes if "too late" in each]
        assert not poll.steps
        time.sleep(0.02)
    assert notes[0].startswith("rollout dumps came too late for 1 step so far")
    line(run, 4)
    assert [each.step for each in drained(follower, 1)] == [4], "the run does not go back"
    assert zero_variance(opened_again(run)) == list(STEPS)


def test_an_incomplete_parquet_file_does_not_block(tmp_path: Path) -> None:
    (tmp_path / "completions").mkdir()
    half = tmp_path / "completions/completions_00001.parquet"
    half.write_bytes(b"PAR1" + bytes(1000))
    for step in (1, 2):
        row = {"step": step, "loss": 0.1, "grad_norm": 1.0, "reward": 0.5, "kl": 0.0,
               "completion_length": 9.0, "reward_std": 0.1, "learning_rate": 1e-6}  # fmt: skip
        with (tmp_path / "metrics.jsonl").open("ab") as file:
            file.write(orjson.dumps(row) + b"\n")
    assert [each.step for each in drained(FrameworkFollower(tmp_path), 2)] == [1, 2]


HOSTILE = "\x1b]0;title\x07<script>alert(1)</script>\u202e"


@pytest.mark.parametrize("name", sorted(set(WRITERS) - {"grpodoctor rollouts"}))
def test_single_responses_can_be_read_again(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path)
    run, _ = opened(tmp_path)
    rows = list(run.rollouts(2))
    without = ("prime-rl token export", "NeMo RL train data", "open-instruct traces",
               "tinker-cookbook rollout summaries")  # fmt: skip
    if name in without:
        assert rows == []
        return
    assert {row["text"] for row in rows} == {row["text"] for row in responses(2)}
    assert {row["prompt"] for row in rows} == {row["prompt"] for row in responses(2)}
    assert len({row["sequence_id"] for row in rows}) == len(rows)
    assert list(run.rollouts(77)) == []


def test_a_report_of_a_framework_run_shows_the_responses_of_its_findings(tmp_path: Path) -> None:
    """TRL's table has no lengths: the highest reward is shown, and what it says is harmless."""
    log(tmp_path)
    for step in STEPS:
        rows = [
            {"input": f"{HOSTILE} {row['prompt']}", "output": f"{HOSTILE} {row['text']}",
             "gts": "", "score": row["reward"], "step": step}
            for row in responses(step)
        ]  # fmt: skip
        lines(tmp_path / "rollouts" / f"{step}.jsonl", rows)
    page = html.render(view_of(replay(tmp_path)))
    best = next(row for row in responses(3) if row["reward"] == 1.0)
    assert best["text"] in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert(1)" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_the_worst_response_is_found_in_the_dump(tmp_path: Path) -> None:
    """The evidence names a response by its id; the page shows what it says."""
    slime = WRITERS["slime details"]
    slime(tmp_path)
    reader = DumpReader(
        dumps_among(files_below(tmp_path)), runner=runners.in_process, shard_bytes=1
    )
    worst = {
        step: values["length/max"].where  # type: ignore[union-attr]
        for step, values in reader.steps()
    }
    texts = reader.dumped_responses
    for step, name in worst.items():
        assert name is not None
        found = [row for row in texts.rows(step, [name]) if row["sequence_id"] == name]
        longest = max(responses(step), key=lambda row: row["length"])
        assert [row["length"] for row in found] == [longest["length"]]


def test_a_dump_deleted_before_the_report_loses_only_its_responses(tmp_path: Path) -> None:
    log(tmp_path)
    verl(tmp_path)
    data = replay(tmp_path)
    for path in (tmp_path / "rollouts").iterdir():
        path.unlink()
    assert "<h2>" in html.render(view_of(data))


def test_reading_reports_the_bytes_of_dumps_and_logs(tmp_path: Path) -> None:
    WRITERS["verl rollouts"](tmp_path)
    log(tmp_path)
    progress = ProgressLog()
    run = open_run(tmp_path, ReadOptions(progress=progress))
    assert list(run.steps)
    assert len(progress.updates) > 1
    assert all(completed <= (total or 0) for completed, total in progress.updates)
    completed, total = progress.updates[-1]
    assert completed == total


def test_a_dump_is_read_without_a_second_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WRITERS["TRL completions"](tmp_path)
    expected = [(step.step, step.values) for step in open_run(tmp_path).steps]

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert [(step.step, step.values) for step in open_run(tmp_path).steps] == expected

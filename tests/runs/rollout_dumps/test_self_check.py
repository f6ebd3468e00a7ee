"""A run of our own recorder against the rollouts that it recorded."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.step import StepBatch
from grpodoctor.monitor.replay import replay
from grpodoctor.monitor.session import Session
from grpodoctor.runs.reading.native_run import NativeFollower
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.recording.recorder import Recorder
from grpodoctor.runs.records import Event, Manifest, StepRecord
from grpodoctor.runs.rollout_dumps import self_check as itself
from grpodoctor.runs.rollout_dumps.self_check import is_due
from grpodoctor.runs.rollouts import Depth, rollouts_file
from grpodoctor.vocabulary.values import Mean, Reading, scalar

Make = Callable[..., RolloutBatch]


def record(
    root: Path, make: Make, steps: range, *, depth: Depth = "summary", **readings: Reading
) -> None:
    own = {name.replace("__", "/"): value for name, value in readings.items()}
    with Recorder.open(root, Manifest(), depth=depth) as run:
        for step in steps:
            batch = make(step, 16)
            run.step(step, StepBatch(rollouts=batch, readings=own), rollouts=batch)


def recomputed(step: StepRecord) -> dict[str, Reading]:
    ends = "/recomputed"
    return {
        name.removesuffix(ends): value for name, value in step.values.items() if name.endswith(ends)
    }


@pytest.mark.parametrize("depth", ["summary", "worst", "full"])
def test_recorded_readings_agree_with_the_rollouts(
    tmp_path: Path, make_batch: Make, depth: Depth
) -> None:
    record(tmp_path, make_batch, range(6), depth=depth)
    for step in open_run(tmp_path).steps:
        again = recomputed(step)
        wanted = {"reward/mean", "length/mean", "groups/reward_std", "entropy/mean",
                  "mismatch/logprob_diff_mean", "accuracy/train"}  # fmt: skip
        assert wanted <= again.keys()
        assert ("mismatch/kl_k3" in again) == (depth == "full")
        for name, reading in again.items():
            logged = scalar(step.values[name])
            assert logged == pytest.approx(scalar(reading), rel=1e-5, abs=1e-9), name
    report = replay(tmp_path, select=["INS001"]).report
    assert report.findings == ()
    assert report.quiet == ("INS001",)


def test_a_contradicting_reading_of_the_trainer_is_found(tmp_path: Path, make_batch: Make) -> None:
    record(tmp_path, make_batch, range(8), reward__mean=Mean.of([0.9]))
    (finding,) = replay(tmp_path, select=["INS001"]).report.findings
    assert "mean reward is logged as 0.9" in finding.summary
    assert finding.onset_step == 0


def test_a_one_percent_difference_on_the_same_responses_is_found(
    tmp_path: Path, make_batch: Make
) -> None:
    """A dump of a part might be so far off by chance; this one is all there is."""
    off = Mean.of(make_batch(0, 16).lengths_B * 1.01)
    record(tmp_path, make_batch, range(8), length__mean=off)
    (finding,) = replay(tmp_path, select=["INS001"]).report.findings
    assert "mean length" in finding.summary


def test_a_file_of_another_run_is_noticed(tmp_path: Path, make_batch: Make) -> None:
    record(tmp_path / "mine", make_batch, range(8))

    def foreign(step: int, count: int) -> RolloutBatch:
        return replace(make_batch(step + 100, count), step=step)

    record(tmp_path / "other", foreign, range(8))
    for step in range(8):
        other = rollouts_file(tmp_path / "other", step, 0)
        other.replace(rollouts_file(tmp_path / "mine", step, 0))
    assert replay(tmp_path / "mine", select=["INS001"]).report.findings


def test_damaged_rollouts_are_counted_and_the_steps_are_kept(
    tmp_path: Path, make_batch: Make
) -> None:
    record(tmp_path, make_batch, range(4))
    path = rollouts_file(tmp_path, 2, 0)
    path.write_bytes(path.read_bytes()[:-200])
    report = replay(tmp_path, select=["INS001"]).report
    assert (report.run.steps, report.damage_total) == (4, 1)
    assert report.damage[0].file == path.name


def test_rollouts_of_other_ranks_are_compared_with_a_line_that_includes_them(
    tmp_path: Path, make_batch: Make
) -> None:
    """One line may be about the responses of rank 0, or about those of all."""
    from grpodoctor.runs.rollouts import write_rollouts

    record(tmp_path / "part", make_batch, range(2))
    other = make_batch(50, 16)
    for step in range(2):
        write_rollouts(tmp_path / "part", replace(other, step=step), rank=1)
    for step in open_run(tmp_path / "part").steps:
        assert scalar(step.values["reward/mean"]) == scalar(recomputed(step)["reward/mean"])
    rewards = np.concatenate([make_batch(0, 16).rewards_B, other.rewards_B])
    lengths = np.concatenate([make_batch(0, 16).lengths_B, other.lengths_B])
    whole = {"reward__mean": Mean.of(rewards), "length__mean": Mean.of(lengths)}
    record(tmp_path / "all", make_batch, range(1), **whole)
    write_rollouts(tmp_path / "all", replace(other, step=0), rank=1)
    (step,) = open_run(tmp_path / "all").steps
    assert recomputed(step)["reward/mean"] == Mean.of(rewards)
    assert "groups/effective_rate" not in recomputed(step), "each rank has groups of its own"


def test_the_newest_step_waits_briefly_for_its_rollouts(
    tmp_path: Path, make_batch: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, make_batch, range(3))
    late = rollouts_file(tmp_path, 2, 0)
    aside = late.rename(tmp_path / "aside")
    monkeypatch.setattr(itself, "PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(itself, "_POLL_SECONDS", 60.0)
    follower = NativeFollower(tmp_path)
    poll = follower.poll()
    assert [each.step for each in poll.steps] == [0, 1]
    assert (poll.pending, [each.kind for each in poll.events]) == (True, ["started"])
    assert follower.poll().steps == []
    aside.rename(late)
    poll = follower.poll()
    assert [each.step for each in poll.steps] == [2]
    assert recomputed(poll.steps[0])
    assert [each.kind for each in poll.events] == ["finished"], "it comes after the last step"
    late.unlink()
    monkeypatch.setattr(itself, "PATIENCE_SECONDS", 0.05)
    follower, found = NativeFollower(tmp_path), list[StepRecord]()
    ends = time.monotonic() + 10
    while len(found) < 3 and time.monotonic() < ends:
        found += follower.poll().steps
        time.sleep(0.02)
    assert not recomputed(found[-1])
    monkeypatch.setattr(itself, "PATIENCE_SECONDS", 60.0)
    assert len(NativeFollower(tmp_path).poll(final=True).steps) == 3


def test_live_and_offline_agree(tmp_path: Path, make_batch: Make) -> None:
    record(tmp_path, make_batch, range(10), reward__mean=Mean.of([0.9]))
    session = Session(tmp_path, select=["INS001"])
    session.read_all()
    assert session.examination.report() == replay(tmp_path, select=["INS001"]).report


def test_a_long_run_is_checked_at_some_steps() -> None:
    due = [step for step in range(100_000) if is_due(step)]
    assert due[:128] == list(range(128))
    assert len(due) < 800
    assert max(right - left for left, right in pairwise(due)) <= 1024


def test_events_are_not_lost(tmp_path: Path, make_batch: Make) -> None:
    record(tmp_path, make_batch, range(3))
    follower, events = NativeFollower(tmp_path), list[Event]()
    for _ in range(3):
        events += follower.poll(final=True).events
    assert [each.kind for each in events] == ["started", "finished"]

"""Repeated rows, counters of rollouts and updates, restarts, and two runs in one log."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from grpodoctor.monitor.replay import replay
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.reading.framework_follower import FrameworkFollower
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.reading.rows.row_order import RowOrder
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import scalar

UPDATES = 2


def row(step: int, counter: str = "", **values: float) -> LogRow:
    return LogRow(step, values, counter=counter)


def placed(order: RowOrder, rows: Iterable[LogRow]) -> list[tuple[int | None, bool]]:
    """Step and restart of each row that is kept."""
    kept = filter(None, map(order.place, rows))
    return [(each.step, restarted) for each, restarted in kept]


def test_a_row_printed_by_two_processes_is_read_once() -> None:
    order = RowOrder()
    first = row(1, loss=0.1, grad=1.5)
    assert placed(order, [first, first, row(1, loss=0.1, grad=1.5, kl=0.25)]) == [(1, False)] * 2
    assert order.dropped == 1


def test_equal_rewards_of_several_responses_are_not_repeats() -> None:
    order = RowOrder()
    rows = [row(1, reward=1.0, length=20.0), row(1, reward=1.0, length=20.0)]
    assert len(placed(order, rows)) == 2


def test_a_copy_of_the_log_behind_itself_is_read_once() -> None:
    rows = [row(step, loss=0.1 * step, grad=1.5) for step in range(1, 30)]
    order = RowOrder()
    assert placed(order, [*rows, *rows]) == [(step, False) for step in range(1, 30)]


def test_a_counter_that_goes_back_with_other_values_is_a_restart() -> None:
    order = RowOrder()
    rows = [row(step, loss=0.1 * step, grad=1.5) for step in range(1, 9)]
    again = [row(step, loss=0.2 * step, grad=1.25) for step in range(6, 11)]
    steps = placed(order, [*rows, *again])
    assert [step for step, restarted in steps if restarted] == [6]


def test_two_counters_do_not_restart_each_other() -> None:
    order = RowOrder()
    rows = [
        each
        for step in range(1, 6)
        for each in (row(step, "rollout", reward=0.1 * step), row(10 * step, "eval", acc=0.5))
    ]
    assert not any(restarted for _, restarted in placed(order, rows))


@pytest.mark.parametrize("ahead", [0, 1], ids=["synchronous", "one rollout ahead"])
def test_updates_are_joined_with_their_rollout(ahead: int) -> None:
    order = RowOrder(update_counters=("step",))
    rollouts = [row(step, "rollout", reward=0.5 + step) for step in range(12)]
    updates = [
        [row(UPDATES * step + each, "step", loss=0.5 * step + each) for each in range(UPDATES)]
        for step in range(12)
    ]
    rows: list[LogRow] = rollouts[:ahead]
    for step in range(12 - ahead):
        rows += [rollouts[step + ahead], *updates[step]]
    steps = [each.step for each in rows if each.counter == "step"]
    kept = [order.place(each) for each in rows]
    joined = [pair[0].step for pair, each in zip(kept, rows, strict=True)
              if pair and each.counter == "step"]  # fmt: skip
    assert order.updates_per_rollout == UPDATES
    settled = 4 * UPDATES  # the first rollouts show how many updates there are
    assert joined[settled:] == [update // UPDATES for update in steps[settled:]]


def test_memory_is_constant_over_many_steps() -> None:
    order = RowOrder()
    names = [f"key{number}" for number in range(40)]

    def run(steps: range) -> None:
        for step in steps:
            order.place(LogRow(step, dict.fromkeys(names, 0.1 * step)))

    run(range(21_000))
    tracemalloc.start()
    try:
        run(range(21_000, 23_000))
        before, _ = tracemalloc.get_traced_memory()
        run(range(23_000, 41_000))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 6_000_000


def slime_lines(rollouts: Iterable[int], shift: float = 0.0) -> list[str]:
    """Console lines as slime and miles print them: each update twice."""
    lines = []
    for step in rollouts:
        rollout = {"rollout/raw_reward": 0.1 + shift + step / 100, "rollout/truncated_ratio": 0.25,
                   "rollout/response_len/mean": 800.5 + step}  # fmt: skip
        lines.append(f"[x] rollout.py:1132 - perf {step}: {rollout}")
        lines.append(f"[x] log.py:53 - rollout {step}: {{'rollout/log_probs': -0.4, "
                     f"'rollout/rollout_log_probs': -0.45, 'rollout/raw_reward': "
                     f"{rollout['rollout/raw_reward']}}}")  # fmt: skip
        for each in range(UPDATES):
            update = UPDATES * step + each
            values = {"train/entropy_loss": 0.5 + shift, "train/pg_clipfrac": 0.125 * each,
                      "train/grad_norm": 1.5 + step, "train/ois": 1.0}  # fmt: skip
            lines += [f"[x] {name} - step {update}: {values}" for name in ("a.py:1", "b.py:2")]
    return lines


def test_a_slime_console_has_one_step_per_rollout(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text("\n".join(slime_lines(range(30))) + "\n")
    run = open_run(path)
    steps = list(run.steps)
    assert run.manifest.framework == "slime"
    assert [each.step for each in steps] == list(range(30))
    last = {name: scalar(reading) for name, reading in steps[-1].values.items()}
    assert last["reward/mean"] == pytest.approx(0.39)
    assert last["clip/any_rate"] == pytest.approx(0.0625), "the mean of both updates"
    assert last["optimizer/grad_norm"] == 30.5
    assert not any("restarted" in note for note in run.notes)


def test_tensorboard_numbers_rollouts_and_updates_alike(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        for step in range(40):
            writer.add_scalar("rollout/raw_reward", 0.25 + step / 64, step)
            writer.add_scalar("rollout/truncated_ratio", 0.25, step)
            for update in range(UPDATES * step, UPDATES * (step + 1)):
                writer.add_scalar("train/ois", 1.0, update)
                writer.add_scalar("train/grad_norm", 1.5 + update, update)
    run = open_run(tmp_path)
    steps = list(run.steps)
    assert run.manifest.framework == "slime"
    assert [each.step for each in steps] == list(range(40))
    assert scalar(steps[39].values["reward/mean"]) == 0.25 + 39 / 64
    assert scalar(steps[39].values["optimizer/grad_norm"]) == 80.0
    assert not any("restarted" in note for note in run.notes)


def followed(path: Path, parts: Iterable[Callable[[], object]]) -> dict[int, StepRecord]:
    """The last version of each step of a log that is followed while its parts are written."""
    follower = FrameworkFollower(path)
    steps: dict[int, StepRecord] = {}

    def poll(*, final: bool = False) -> None:
        more = True
        while more:
            found = follower.poll(final=final)
            steps.update({each.step: each for each in found.steps})
            more = found.more or (final and bool(found.steps))

    for write in parts:
        write()
        poll()
        time.sleep(0.35)  # the log is quiet, as between a rollout and its update
        poll()
    poll(final=True)
    return steps


def test_a_rollout_that_is_shown_early_is_completed_by_its_updates(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    lines = slime_lines(range(4))
    path.write_text("\n".join(lines[:12]) + "\n")

    def append(line: str) -> None:
        with path.open("a") as file:
            file.write(f"{line}\n")

    live = followed(path, [lambda line=line: append(line) for line in lines[12:]])  # type: ignore[misc]
    offline = {each.step: each for each in open_run(path).steps}
    assert {step: each.values for step, each in live.items()} == {
        step: each.values for step, each in offline.items()
    }


def test_of_two_runs_in_one_file_the_last_is_examined(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text("\n".join([*slime_lines(range(40)), *slime_lines(range(25), shift=0.3)]))
    report = replay(path).report
    assert report.run.steps == 25
    assert report.run.last_step == 24
    assert [(run.first_step, run.last_step) for run in report.earlier_runs] == [(0, 39)]
    assert any("contains 2 runs" in note for note in report.notes), report.notes


def test_late_rows_of_another_counter_do_not_rewind_the_run(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = [{"step": step, "reward": 0.5 + step / 100, "loss": 0.25} for step in range(1, 61)]
    late = {"type": "eval", "step": 20, "accuracy": 0.25}
    path.write_text("\n".join(map(json.dumps, [*rows[:50], late, *rows[50:]])))
    run = open_run(path)
    assert [each.step for each in run.steps] == list(range(1, 61))
    assert not any("restarted" in note for note in run.notes)
    assert any("1 row is more than 16 steps behind" in note for note in run.notes)

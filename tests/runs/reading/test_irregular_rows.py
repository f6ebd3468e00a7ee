"""Rows in any order, with gaps, NaN and constants: no exception, and nothing found in nothing."""

from __future__ import annotations

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpodoctor.monitor.replay import replay
from grpodoctor.runs.reading.framework_follower import FrameworkFollower
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.vocabulary.values import scalar

NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e308, -1e-308]),
)
METRICS = ("reward", "loss", "entropy", "grad_norm", "response_length", "accuracy", "kl_ref")
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "step": st.one_of(st.integers(0, 40), st.integers(-5, 10**15), st.just("x"), st.none()),
        "type": st.sampled_from(["train", "rollout", "eval", "stage2", ""]),
        **dict.fromkeys(METRICS, NUMBERS),
        "eval": st.fixed_dictionaries({}, optional={"accuracy": NUMBERS, "reward": NUMBERS}),
    },
)


def written(rows: list[dict[str, Any]], directory: str) -> Path:
    path = Path(directory) / "metrics.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck))
@given(st.lists(ROWS, max_size=60))
def test_rows_in_any_order_are_read_and_examined(rows: list[dict[str, Any]]) -> None:
    complete = {"step": 1, "reward": 0.5, "loss": 0.1}
    with TemporaryDirectory() as directory:
        path = written([complete, *rows], directory)
        steps = [each.step for each in open_run(path).steps]
        assert steps
        assert all(step >= 0 for step in steps)
        replay(path)


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_nothing_is_found_in_one_row(value: float, tmp_path: Path) -> None:
    row = {"step": 1, "reward": 0.5, **dict.fromkeys(METRICS[1:], value)}
    report = replay(written([row], str(tmp_path))).report
    assert not report.findings
    assert report.run.steps == 1


def test_a_gap_in_the_steps_is_no_restart(tmp_path: Path) -> None:
    rows = [{"step": step, "reward": 0.5 + step % 3 / 10, "loss": 0.1}
            for step in [*range(5), *range(1000, 1030), 10**6]]  # fmt: skip
    run = open_run(written(rows, str(tmp_path)))
    assert [each.step for each in run.steps] == [row["step"] for row in rows]
    assert not any("restarted" in note for note in run.notes)


def test_rows_in_reverse_order_keep_every_step_once(tmp_path: Path) -> None:
    rows = [{"step": step, "reward": step / 64, "loss": 0.1 * step} for step in range(30, 0, -1)]
    report = replay(written(rows, str(tmp_path))).report
    assert (report.run.last_step, report.run.steps) == (30, 30)
    assert any("29 rows are out of order" in note for note in report.notes)
    assert not any("restarted" in note for note in report.notes)


def shuffled(count: int) -> list[dict[str, float]]:
    rows = [{"step": step, "reward": step / 64, "loss": 0.1 * step} for step in range(count)]
    random.Random(1).shuffle(rows)
    return rows


@pytest.mark.parametrize("count", [60, 9000])
def test_shuffled_rows_are_sorted(count: int, tmp_path: Path) -> None:
    run = open_run(written(shuffled(count), str(tmp_path)))
    steps = list(run.steps)
    assert [each.step for each in steps] == list(range(count))
    assert scalar(steps[-1].values["reward/mean"]) == (count - 1) / 64
    assert [note for note in run.notes if "out of order" in note]
    assert not any("restarted" in note for note in run.notes)


@pytest.mark.parametrize("distance", [1, 3])
@pytest.mark.parametrize("every", [1, 50])
def test_neighbouring_rows_are_swapped_without_a_restart(
    distance: int, every: int, tmp_path: Path
) -> None:
    """Also in a live log, where each row is read as it is written."""
    order = list(range(200))
    for first in range(100, 190, 10):
        order[first], order[first + distance] = order[first + distance], order[first]
    rows = [{"step": every * step, "reward": step / 256, "loss": 0.1 * step} for step in order]
    path = tmp_path / "metrics.jsonl"
    follower = FrameworkFollower(path)
    steps: dict[int, float | None] = {}
    for row in rows:
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        poll = follower.poll()
        assert not any("restarted" in note for note in poll.notes)
        steps |= {each.step: scalar(each.values["reward/mean"]) for each in poll.steps}
    for _ in range(3):
        poll = follower.poll(final=True)
        assert not any("restarted" in note for note in poll.notes)
        steps |= {each.step: scalar(each.values["reward/mean"]) for each in poll.steps}
    assert steps == {every * step: step / 256 for step in range(200)}


def test_a_step_that_occurs_again_is_a_restart_and_not_sorted(tmp_path: Path) -> None:
    order = [*range(30), *range(20, 40)]
    rows = [{"step": step, "reward": place / 64, "loss": 0.1 * place}
            for place, step in enumerate(order)]  # fmt: skip
    run = open_run(written(rows, str(tmp_path)))
    steps = {each.step: scalar(each.values["reward/mean"]) for each in run.steps}
    assert steps[20] == 30 / 64
    assert any("restarted" in note for note in run.notes)
    assert not any("out of order" in note for note in run.notes)

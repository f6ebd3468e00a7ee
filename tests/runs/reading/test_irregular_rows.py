"""Rows in any order, with gaps, NaN and constants: no exception, and nothing found in nothing."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpodoctor.monitor.replay import replay
from grpodoctor.runs.reading.opening import open_run

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
    assert report.run.last_step == 1
    assert any("jumps back" in note for note in report.notes)

"""Reading takes the same work for each row, and its result does not depend on blocks or pauses."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FrameType

import pytest

from grpodoctor.runs.reading.framework_follower import FrameworkFollower
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.records import StepRecord

KEYS = (
    "loss", "grad_norm", "learning_rate", "reward", "reward_std", "kl", "entropy",
    "frac_reward_zero_std", "completions/mean_length", "completions/clipped_ratio", "epoch",
)  # fmt: skip
MOST_CALLS = 80
"""Calls of Python functions for a row: 69 in November 2026; 22 of them make the 11 readings."""


def write_rows(path: Path, count: int, shift: float = 0.0, *, nested: bool = False) -> Path:
    with path.open("w") as file:
        for step in range(1, count + 1):
            values = {
                key: round(0.3 + shift + 0.01 * place + step % 97 / 1000, 6)
                for place, key in enumerate(KEYS)
            }
            row = {"step": step, "data": values} if nested else {"step": step, **values}
            file.write(json.dumps(row) + "\n")
    return path


def calls_per_row(path: Path, skipped: int) -> float:
    """Calls of Python functions per step of a run, after the first ones."""
    follower = FrameworkFollower(path)
    steps = 0
    while steps < skipped:
        steps += len(follower.poll(final=True).steps)
    calls = counted = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    more = True
    sys.setprofile(count)
    try:
        while more and counted < 1000:
            poll = follower.poll(final=True)
            counted, more = counted + len(poll.steps), poll.more
    finally:
        sys.setprofile(None)
    return calls / counted


@pytest.mark.slow
@pytest.mark.parametrize("nested", [False, True])
def test_a_late_row_takes_as_much_work_as_an_early_one(tmp_path: Path, *, nested: bool) -> None:
    path = write_rows(tmp_path / "log.jsonl", 12_000, nested=nested)
    early, late = calls_per_row(path, 2000), calls_per_row(path, 10_000)
    assert late < 1.05 * early
    assert early < MOST_CALLS


def _content(steps: list[StepRecord]) -> list[tuple[int, dict[str, object]]]:
    return [(step.step, dict(step.values)) for step in steps]


@pytest.mark.parametrize("pause", [0.3, -1.0])
def test_blocks_and_pauses_do_not_change_what_two_logs_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pause: float
) -> None:
    """The second log ends in the first block, and has other values where both have some."""
    write_rows(tmp_path / "a.jsonl", 400)
    (tmp_path / "b.jsonl").write_text(
        "".join(
            json.dumps({"step": step, "reward": 0.9, "entropy": 0.1, "extra": 1.0}) + "\n"
            for step in range(10, 401, 10)
        )
    )
    whole = open_run(tmp_path)
    expected = _content(list(whole.steps))
    for name in ("BLOCK", "ROW_BLOCK"):
        monkeypatch.setattr(f"grpodoctor.support.files.growing_files.{name}", 4096)
    monkeypatch.setattr("grpodoctor.runs.reading.framework_follower.QUIET_SECONDS", pause)
    parts = open_run(tmp_path)
    assert _content(list(parts.steps)) == expected
    assert len(expected) == 400
    conflicts = [
        [note for note in run.notes if note.startswith("two logs disagree")]  # type: ignore[attr-defined]
        for run in (whole, parts)
    ]
    assert conflicts[0] == conflicts[1] != []

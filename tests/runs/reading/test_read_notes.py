from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpodoctor.monitor.replay import replay
from grpodoctor.runs.reading.read_notes import short_run_note


@pytest.mark.parametrize(
    ("readings", "steps", "said"),
    [(20, 20, ""), (7, 80, "too short for a verdict"), (0, 3, "too short for a verdict")],
)
def test_a_short_log_is_reported_as_short(readings: int, steps: int, said: str) -> None:
    assert said in short_run_note(readings, steps)
    assert bool(said) == bool(short_run_note(readings, steps))


def test_a_long_log_without_a_reward_is_not_called_short() -> None:
    """A supervised run alongside others, or unknown names."""
    said = short_run_note(0, 400)
    assert "no reward was found in 400 steps" in said
    assert "short" not in said
    assert "supervised" in said
    with_groups = short_run_note(0, 400, has_groups=True)
    assert "shares of groups are judged" in with_groups
    assert "supervised" not in with_groups


@pytest.mark.parametrize("has_accuracy", [True, False])
def test_open_instruct_without_a_reward_is_not_called_supervised(
    tmp_path: Path, has_accuracy: bool
) -> None:
    log = tmp_path / "log.jsonl"
    correct = {"objective/verifiable_correct_rate": 0.4} if has_accuracy else {}
    rows = [
        {"training_step": step, "episode": 512 * step, "batch/total_prompts": 4,
         "batch/filtered_prompts": 60, "batch/filtered_prompts_solved": 30,
         "batch/filtered_prompts_zero": 30, "val/sequence_lengths": 500 + step % 7, **correct}
        for step in range(1, 60)
    ]  # fmt: skip
    log.write_text("\n".join(map(json.dumps, rows)))
    notes = " ".join(replay(log).report.notes)
    assert "supervised" not in notes
    assert ("no reward was found" in notes) != has_accuracy

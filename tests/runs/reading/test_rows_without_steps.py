"""Rows that are no steps of a training."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.errors import RunError
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.reading.rows_without_steps import episodes_of_actions, texts_of_responses
from tests.runs.rollout_dumps.samples import lines


def actions(step: int, episode: str) -> LogRow:
    return LogRow(step, {"reward": 0.1}, 0.0, {"episode_id": episode})


def test_steps_that_begin_again_with_every_episode_count_actions() -> None:
    rows = [actions(step, f"e{episode}") for episode in range(4) for step in range(6)]
    assert episodes_of_actions(rows) == "episode_id"


def test_steps_that_go_on_in_the_next_episode_are_those_of_the_training() -> None:
    rows = [actions(6 * episode + step, f"e{episode}") for episode in range(4) for step in range(6)]
    assert not episodes_of_actions(rows)


def test_a_restarted_job_is_no_episode() -> None:
    rows = [actions(step, f"e{part}{step}") for part in range(4) for step in range(6)]
    assert not episodes_of_actions(rows)


def test_a_log_of_actions_is_refused_with_its_column(tmp_path: Path) -> None:
    path = tmp_path / "raw.jsonl"
    rows = [
        {"episode_id": f"e{episode}", "step": step, "reward": 0.1 * step}
        for episode in range(8)
        for step in range(9)
    ]
    lines(path, rows)
    with pytest.raises(RunError, match="episode_id"):
        list(open_run(path).steps)


def test_columns_that_end_with_the_words_are_those_of_responses() -> None:
    texts = {"Prompt": "3 + 4?", "Policy Model Response": "seven"}
    rows = [LogRow(None, {"Score": 0.5}, 0.0, texts)] * 30
    assert texts_of_responses(rows) == ["Prompt", "Policy Model Response"]
    assert not texts_of_responses(
        [LogRow(None, {"Score": 0.5}, 0.0, {"Prompt": "3", "responses": "many"})] * 30
    )

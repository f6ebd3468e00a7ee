"""Tables with one line per step in console text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.log_formats.console_text import VERL, rows_of

MARKDOWN = (
    "| Step | Training Loss | reward | kl |\n|---|---|---|---|\n"
    "| 1 | 0.01 | 0.25 | 0.002 |\nSaving a checkpoint\n| 2 | 0.02 | 0.50 | 0.003 |\n"
)


@pytest.mark.parametrize(
    "text",
    [
        MARKDOWN,
        "Step   Reward   KL\n------------------\n1      0.25     0.002\n2      0.50     0.003\n",
        "║ Step ║ Reward ║ KL ║\n╠══════╬══════╬═════╣\n║ 1 ║ 25% ║ 0.002 ║\n║ 2 ║ 50% ║ 0.003 ║\n",
        "step\treward\tkl\n1\t0.25\t0.002\n2\t0.50\t0.003\n",
    ],
)
def test_a_table_of_steps_is_read(text: str, tmp_path: Path) -> None:
    rows = rows_of(text, tmp_path)
    assert [(row.step, row.values["line/reward"]) for row in rows] == [(1, 0.25), (2, 0.5)]
    assert rows[1].values["line/kl"] == 0.003


@pytest.mark.parametrize(
    "text",
    [
        "| Step | Action | Cost |\n|---|---|---|\n| 1 | 3 | 4 |\n| 2 | 5 | 6 |\n",
        "| Model | reward | kl |\n|---|---|---|\n| 1 | 0.5 | 0.1 |\n| 2 | 0.6 | 0.1 |\n",
        "Step by step   reward   kl of this\n1   2   3\n",
    ],
)
def test_a_table_without_a_step_or_a_known_name_is_no_log(text: str, tmp_path: Path) -> None:
    assert rows_of(text, tmp_path) == []


def test_statistics_of_metrics_are_no_steps(tmp_path: Path) -> None:
    head = "| metric | n | first | last | mean |\n|---|---|---|---|---|\n"
    run = "| step | 250 | 1 | 250 | 125.5 |\n| reward | 250 | 0.1 | 0.9 | 0.5 |\n"
    assert rows_of(head + run + "\n" + head + run, tmp_path) == []


def test_a_table_in_a_response_is_no_row_of_a_frameworks_log(tmp_path: Path) -> None:
    rows = rows_of(f"{MARKDOWN}{VERL.format(step=7, reward=0.5)}\n{MARKDOWN}", tmp_path)
    assert [row.step for row in rows] == [7]

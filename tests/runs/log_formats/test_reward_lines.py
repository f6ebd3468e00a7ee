"""Lines that only list the rewards of a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.log_formats.console_text import VERL, rows_of


@pytest.mark.parametrize(
    "line",
    [
        "time: 7.18s     rewards: tensor([-1., 1., 1., 1.], device='cuda:0')\n",
        "Rewards: [-1.0, 1.0, 1.0, 1.0] (3/4 correct)\n",
    ],
)
def test_lists_of_rewards_are_counted_as_steps(line: str, tmp_path: Path) -> None:
    rows = rows_of(f"Generating responses\n{line}" * 25, tmp_path)
    assert [row.step for row in rows] == list(range(1, 26))
    assert {row.values["line/reward_mean"] for row in rows} == {0.5}


def test_few_lists_or_lists_among_other_rows_are_no_steps(tmp_path: Path) -> None:
    line = "rewards: tensor([-1., 1., 1., 1.])\n"
    assert rows_of(line * 10, tmp_path) == []
    assert rows_of("rewards: [0.1, words, 0.2, 0.3]\n" * 25, tmp_path) == []
    rows = rows_of(f"{line * 25}{VERL.format(step=7, reward=0.5)}\n{line * 25}", tmp_path)
    assert [row.step for row in rows] == [7]

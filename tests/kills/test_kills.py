"""Some of the kills of `make kills`."""

from __future__ import annotations

from pathlib import Path

from tests.kills.killed_trainings import VICTIMS, kill_runs


def test_killed_trainings_lose_nothing(tmp_path: Path) -> None:
    outcome = kill_runs(tmp_path, 2 * len(VICTIMS), 1, print)
    assert sum(outcome.kills.values()) == 2 * len(VICTIMS)
    assert set(outcome.lost) <= {0, 1}

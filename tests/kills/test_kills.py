"""Some of the kills of `make kills`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kills.killed_trainings import VICTIMS, kill_runs


@pytest.mark.timeout(1200)  # five trainings, on a machine with any other work
def test_killed_trainings_lose_nothing(tmp_path: Path) -> None:
    outcome = kill_runs(tmp_path, len(VICTIMS), 1, print, steps=20)
    assert sum(outcome.kills.values()) == len(VICTIMS)
    assert set(outcome.lost) <= {0, 1}

from __future__ import annotations

import pytest

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

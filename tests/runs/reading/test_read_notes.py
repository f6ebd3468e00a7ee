from __future__ import annotations

import pytest

from grpodoctor.runs.reading.read_notes import told_short


@pytest.mark.parametrize(
    ("readings", "steps", "said"),
    [(20, 20, ""), (7, 80, "too short for a verdict"), (0, 3, "too short for a verdict")],
)
def test_a_short_log_is_called_so(readings: int, steps: int, said: str) -> None:
    assert said in told_short(readings, steps)
    assert bool(said) == bool(told_short(readings, steps))


def test_a_long_log_without_a_reward_is_not_called_short() -> None:
    """A supervised run beside the others, or names that nobody knows."""
    said = told_short(0, 400)
    assert "no reward was read in 400 steps" in said
    assert "short" not in said

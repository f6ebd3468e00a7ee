"""Values that a log repeats, and values that happen to be equal."""

from __future__ import annotations

import random
from collections.abc import Callable

from grpodoctor.runs.reading.rows.repeated_values import RepeatedValues
from grpodoctor.vocabulary.values import Mean, Reading


def counts(
    rows: int, curve: Callable[[int], dict[str, float]]
) -> tuple[dict[str, int], RepeatedValues]:
    """How many readings of each metric are left of a log, learned from fifty rows ahead."""
    held, kept = RepeatedValues(), dict[str, int]()
    readings: list[dict[str, Reading]] = [
        {name: Mean.of([value]) for name, value in curve(row).items()} for row in range(rows)
    ]
    for row in readings[:50]:
        held.learn(row)
    for number, row in enumerate(readings):
        if number >= 50:
            held.learn(row)
        for name in held.without_repeats(row):
            kept[name] = kept.get(name, 0) + 1
    return kept, held


def test_a_forward_filled_log_counts_each_measurement_once() -> None:
    """Every number written ten times; a reward that stands still is measured no more often."""

    def filled(row: int) -> dict[str, float]:
        block = row // 10
        reward = 1.0 if block % 7 else 0.98
        return {"optimizer/loss": block / 7, "reward/mean": reward, "length/mean": 5.0}

    kept, held = counts(990, filled)
    assert kept == {"optimizer/loss": 99, "reward/mean": 99, "length/mean": 99}
    assert held.periods["reward/mean"] == 10


def test_a_repeated_evaluation_counts_once() -> None:
    noise = random.Random(1)

    def carried(row: int) -> dict[str, float]:
        return {"accuracy/heldout": 0.5 + row // 5 / 100, "reward/mean": noise.random()}

    kept, _ = counts(400, carried)
    assert kept == {"accuracy/heldout": 80, "reward/mean": 400}


def test_equal_measurements_are_not_repeats() -> None:
    """A run without any reward, and one whose coarse rewards repeat by chance."""
    noise = random.Random(2)
    kept, _ = counts(300, lambda _: {"reward/mean": 0.0, "optimizer/loss": 0.0})
    assert kept == {"reward/mean": 300, "optimizer/loss": 300}
    kept, _ = counts(300, lambda _: {"reward/mean": noise.randrange(3) / 2})
    assert kept == {"reward/mean": 300}


def test_a_stepwise_schedule_alone_shows_no_repeats() -> None:
    kept, _ = counts(
        300, lambda row: {"optimizer/learning_rate": 1 / (1 + row // 10), "reward/mean": 0.0}
    )
    assert kept == {"optimizer/learning_rate": 300, "reward/mean": 300}


def test_a_reward_that_stops_changing_is_stuck_and_not_carried_forward() -> None:
    """Four plateaus of eight rows, then one of a hundred: after four more periods, rows count."""

    def collapsed(row: int) -> dict[str, float]:
        reward = row // 8 / 3 if row < 40 else -1.0
        return {"reward/mean": reward, "accuracy/heldout": reward}

    kept, held = counts(140, collapsed)
    assert held.periods == {"reward/mean": 8, "accuracy/heldout": 8}
    assert kept["reward/mean"] == 5 + 4 + (100 - 4 * 8)
    assert kept["accuracy/heldout"] == 5 + 13  # an evaluation may have the same result for long
    assert held.stuck == {"reward/mean"}


def test_a_constant_reward_is_carried_forward_while_others_of_its_period_change() -> None:
    kept, held = counts(
        400, lambda row: {"optimizer/loss": row // 8 / 3, "reward/mean": min(row // 8, 9) / 9}
    )
    assert kept == {"optimizer/loss": 50, "reward/mean": 50}
    assert not held.stuck

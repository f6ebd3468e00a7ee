"""The keys under which the rows of a log name their step and time."""

from __future__ import annotations

from dataclasses import dataclass

MOST_KEYS = 4096
"""Limit on the keys read from one log. A training log has fewer."""


@dataclass(frozen=True, slots=True)
class RowKeys:
    """Keys that hold a row's step and time, the preferred ones first."""

    step: tuple[str, ...] = (
        "step",
        "global_step",
        "training_step",
        "train/global_step",
        "training/global_step",
        "trainer/global_step",
        "global_step/max_steps",
        "rollout/step",
        "train/step",
        "iteration",
        "train_global_step",
        "training_global_step",
        "Step",
        "steps",
        "_step",
    )
    """The default lists the names that frameworks and loggers use. The logger's own counter comes
    last because it counts calls, not training steps."""
    time: tuple[str, ...] = ("time", "timestamp", "_timestamp", "wall_time")

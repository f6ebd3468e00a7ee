"""What every carrier gives: the rows of a log, as they stand there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from grpodoctor.support.growing_files import Chunk


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a foreign log: some numbers of one step, under the framework's own keys."""

    step: int | None
    """As the log says it; None where the row says nothing."""
    values: Mapping[str, float]
    """Finite or not; what is no number, and no text of one, is not among them."""
    time: float = 0.0
    """Unix time; 0 if unknown."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """What is no number: names, versions, settings."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Under which keys a framework's rows say when they are."""

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
    """Best first. The default is what frameworks and loggers call it, the logger's own count last:
    it counts calls, not steps."""
    time: tuple[str, ...] = ("time", "timestamp", "_timestamp", "wall_time")


class Carrier(Protocol):
    """A log in one file format, read once or again and again while it grows."""

    path: Path
    name: str
    """Of the format: `jsonl`, `csv`, `console` …"""

    def read(self) -> Chunk[Row]:
        """The rows of the next block.

        Raises:
            RunError: if the file is there but cannot be read.
        """

    def was_replaced(self) -> bool:
        """Whether what was read so far is gone: removed, replaced or cut short."""

    def rewind(self) -> None:
        """Start over at the first row."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Settings that stand in the log itself, nested as they are; empty where there are none."""


MOST_KEYS = 4096
"""Keys of a row that are looked at: a log with more is no training log."""


def number(value: object) -> float | None:
    """A number, or the text of one as loggers print it; None if it is neither.

    Booleans count as 0 and 1, as loggers mean them. `np.float64(0.3)` and a trailing `%` are left
    to the carrier that knows them.
    """
    if isinstance(value, bool | int | float):
        return float(value) if abs(value) < 1e308 or isinstance(value, float) else None
    if not isinstance(value, str) or not 0 < len(value) <= 40:
        return None
    try:
        return float(value)
    except ValueError:
        return None

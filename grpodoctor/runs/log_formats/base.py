"""What every reader gives: the rows of a log, as they stand there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from grpodoctor.support.growing_files import Chunk


@dataclass(frozen=True, slots=True)
class LogRow:
    """One row of a foreign log: some numbers of one step, under the framework's own keys."""

    step: int | None
    """As the log says it; None where the row says nothing."""
    values: Mapping[str, float]
    """Finite or not; what is no number, and no text of one, is not among them."""
    time: float = 0.0
    """Unix time; 0 if unknown."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """What is no number: names, versions, settings."""


class LogReader(Protocol):
    """A log in one file format, read once or again and again while it grows."""

    path: Path
    name: str
    """Of the format: `jsonl`, `csv`, `console` …"""

    def read(self) -> Chunk[LogRow]:
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

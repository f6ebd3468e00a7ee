"""The rows of a log, and the interface of the readers of all file formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from grpodoctor.runs.crash import Crash
from grpodoctor.support.files.growing_files import Chunk

CONSOLE = "console"
"""The name of the format of printed output."""

EVALUATION = "eval"
"""The counter of rows of an evaluation."""

PART_OF_STEP = "part of step"
"""The counter of rows that each cover a part of a step, such as one of a rollout's updates."""


@dataclass(frozen=True, slots=True)
class LogRow:
    """One row of a framework's log: values of one step, under the framework's own keys."""

    step: int | None
    """Step in the log; None if the row has none."""
    values: Mapping[str, float]
    """Numbers, finite or not, including numbers written as text."""
    time: float = 0.0
    """Unix time; 0 if unknown."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Other values: names, versions, settings."""
    counter: str = ""
    """What the step counts, if the log tells: rollouts, updates, evaluations. Empty for the log's
    main counter."""
    counts: Mapping[str, object] = field(default_factory=dict)
    """The values of the keys that may hold the step, the preferred one first, if the names leave
    open which one does."""


class LogReader(Protocol):
    """Reads a log in one file format, once or repeatedly while it grows."""

    path: Path
    name: str
    """Name of the format: `jsonl`, `csv`, `console` …"""

    def read(self) -> Chunk[LogRow]:
        """Read the rows of the next block.

        Raises:
            RunError: if the file exists but cannot be read.
        """

    def was_replaced(self) -> bool:
        """Whether the file was removed, replaced or truncated."""

    def rewind(self) -> None:
        """Start over at the first row."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The run's config in the log itself, nested; empty if there is none."""

    @property
    def crash(self) -> Crash | None:
        """The error with which the log of a program ends; None if it ends with something else."""


@runtime_checkable
class WaitingReader(Protocol):
    """Reads a log whose last row can be told from a half-written one only at the end."""

    def read_end(self) -> Chunk[LogRow]:
        """Read the rows that wait, once nothing is written to the file any more.

        Raises:
            RunError: if the file exists but cannot be read.
        """


def chunks_of(reader: LogReader) -> Iterator[Chunk[LogRow]]:
    """All blocks of a log to which nothing is written any more.

    Raises:
        RunError: if the file exists but cannot be read.
    """
    more = True
    while more:
        chunk = reader.read()
        more = chunk.more
        yield chunk
    if isinstance(reader, WaitingReader):
        yield reader.read_end()

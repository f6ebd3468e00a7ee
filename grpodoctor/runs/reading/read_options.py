"""The user's options for reading a log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from grpodoctor.frameworks.rollout_formats.base import DumpFormat
from grpodoctor.frameworks.rollout_formats.dump_file import DumpFile
from grpodoctor.support.progress import NoProgress, Progress


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The user's options for reading a log."""

    format: str | None = None
    """Name of a framework or of a file format; detected if None."""
    run_config: Path | None = None
    """File with the run's config, if the log does not contain it."""
    mapping: Mapping[str, str] = field(default_factory=dict)
    """Keys of the log and their canonical metrics; it overrides the framework's table."""
    ray: str | None = None
    """Ray cluster that reads rollout dumps: `local`, `auto` or an address."""
    remote_dumps: tuple[tuple[DumpFormat, DumpFile], ...] = ()
    """Rollout dumps that are read directly from a remote store."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Columns and the values that rows must have there, to read one of several runs in a log."""
    progress: Progress = field(default_factory=NoProgress)
    """Receives the bytes that were read, of the dumps and then of the logs."""
    keep_unread_keys: bool = False
    """Whether steps contain the numbers of keys that give no metric, for charts."""

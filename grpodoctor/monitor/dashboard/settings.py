"""The options of `grpodoctor dashboard`, as they are handed to the pages."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from grpodoctor.monitor.project_settings import ProjectSettings, load_settings
from grpodoctor.runs.reading.read_options import ReadOptions


class DashboardSettings(BaseModel):
    """What the command line decided; the pages receive it as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token: str
    """The secret that an address must contain."""
    paths: tuple[Path, ...]
    """Absolute paths of the runs, and of the folders of runs."""
    framework: str | None = None
    """Framework whose keys the remedies show; the run's own if None."""
    log_format: str | None = None
    """Framework or file format of the logs; detected if None."""
    mapping: dict[str, str] = {}
    """Log keys and the metric that each holds."""
    where: dict[str, str] = {}
    """Columns and the values of the rows to read from logs with several runs."""
    project_file: Path | None = None
    """The project's settings file, if there is one."""
    allow_treatment: bool = False
    """Whether a reader may approve a treatment of a live run."""

    def project(self) -> ProjectSettings:
        """The project's settings.

        Raises:
            ConfigError: if the file has become unreadable since the start.
        """
        return ProjectSettings() if self.project_file is None else load_settings(self.project_file)

    def read_options(self) -> ReadOptions:
        """How to read the log of a framework."""
        return ReadOptions(
            format=self.log_format,
            mapping=self.mapping,
            where=self.where,
            keep_unread_keys=True,
        )

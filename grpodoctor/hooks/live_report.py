"""Findings of a live run, read from its directory on request."""

from __future__ import annotations

from pathlib import Path

from grpodoctor.monitor.project_settings import ProjectSettings, find_settings, load_settings
from grpodoctor.monitor.report_data import report_data
from grpodoctor.monitor.session import Session
from grpodoctor.report.run.run_report import RunReport


def project_settings() -> ProjectSettings:
    """The settings of the project in the working directory, as `grpodoctor watch` uses them.

    Raises:
        ConfigError: if the settings file is not valid.
    """
    path = find_settings()
    return ProjectSettings() if path is None else load_settings(path)


class LiveReport:
    """Reads a run directory; it costs the training nothing until it is used.

    Args:
        run_dir: the run directory.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._session: Session | None = None

    def report(self) -> RunReport:
        """The report of the steps on disk; a later call reads only new ones.

        Raises:
            RunError: if the run cannot be read.
            ConfigError: if the project's settings file is not valid.
        """
        if self._session is None:
            self._session = Session(self._run_dir, project=project_settings())
        while self._session.tick(final=True).more:
            pass
        return RunReport(report_data(self._session.examination))

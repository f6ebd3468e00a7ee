"""The file that an annotation of a run is attached to, as continuous integration expects it."""

from __future__ import annotations

import os
from pathlib import Path

from grpodoctor.monitor.report import Report


def log_location(report: Report, root: Path | None) -> str:
    """The path of a run's log; empty if the log is not on this machine.

    Args:
        report: the report on the run.
        root: the checkout of the repository. The path of a log below it is relative to it, as
            GitHub and SARIF readers look for files in the repository.
    """
    path = report.run.log
    if not path or root is None:
        return path
    relative = os.path.relpath(os.path.realpath(path), os.path.realpath(root))
    return path if relative.startswith("..") else Path(relative).as_posix()

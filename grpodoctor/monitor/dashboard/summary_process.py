"""The process that examines runs for the table of runs; the pages stay responsive meanwhile.

Requests are JSON objects: `settings`, and either `folder`, which is searched for runs, or `path`,
which is examined.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from grpodoctor.errors import GrpodoctorError
from grpodoctor.monitor.dashboard.run_summary import summarize
from grpodoctor.monitor.dashboard.settings import DashboardSettings
from grpodoctor.runs.reading.run_discovery import runs_in
from grpodoctor.support.worker_process import parent_connection, send_reply

_NICE = 5
"""The process gives way to a training on the same machine."""


def main() -> None:
    """Answer requests until the parent process ends."""
    os.nice(_NICE)
    connection = parent_connection()
    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            return
        send_reply(connection, _answer(request))


def _answer(request: dict[str, Any]) -> object:
    settings = DashboardSettings.model_validate_json(request["settings"])
    if "folder" in request:
        return _found(Path(request["folder"]), settings)
    return summarize(Path(request["path"]), settings).to_json()


def _found(folder: Path, settings: DashboardSettings) -> list[str]:
    """The runs in a folder; the folder itself, whose row says why, if it cannot be searched."""
    try:
        return [str(path) for path in runs_in(folder, settings.read_options())]
    except (GrpodoctorError, OSError):
        return [str(folder)]


if __name__ == "__main__":
    main()

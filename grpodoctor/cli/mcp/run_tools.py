"""What agents may read: the runs below one directory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from grpodoctor.errors import ConfigError
from grpodoctor.monitor.bounded_json import UNTRUSTED, bounded, bounded_findings, short
from grpodoctor.monitor.outgoing.step_snapshot import SnapshotRequest, step_snapshot
from grpodoctor.monitor.project_settings import ProjectSettings
from grpodoctor.monitor.replay import replay
from grpodoctor.runs.reading.opening import is_native
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.runs.reading.run_discovery import runs_in
from grpodoctor.support.safe_text import printable

_MOST_RUNS = 200


class RunTools:
    """Reads runs.

    Args:
        root: no path outside this directory is read.
        project: the project's settings.
    """

    def __init__(self, root: Path, project: ProjectSettings) -> None:
        self.root, self.project = root.resolve(), project

    def path_of(self, run: str) -> Path:
        """The path of a run.

        Raises:
            ConfigError: if it is outside the root, or does not exist.
        """
        try:
            path = (self.root / run).resolve()
            is_inside = path.is_relative_to(self.root)
            exists = is_inside and path.exists()
        except (OSError, ValueError, RuntimeError):
            is_inside = exists = False
        remedy = "choose one that list_runs returns"
        if not is_inside:
            raise ConfigError("the path is not below the root", where=printable(run), remedy=remedy)
        if not exists:
            raise ConfigError("there is no such run", where=printable(run), remedy=remedy)
        return path

    def list_runs(self) -> dict[str, Any]:
        """The runs below the root, the latest first."""
        paths = runs_in(self.root, ReadOptions())
        inside = [path for path in paths if path.resolve().is_relative_to(self.root)]
        runs = sorted(map(self._entry, inside), key=lambda run: -run["modified"])
        return {"untrusted": UNTRUSTED, "runs": runs[:_MOST_RUNS], "total": len(runs)}

    def _entry(self, path: Path) -> dict[str, Any]:
        files = [path, *path.iterdir()] if path.is_dir() else [path]
        modified = max(file.stat().st_mtime for file in files if file.exists())
        return {
            "run": short(str(path.relative_to(self.root))),
            "recorded_by_grpodoctor": is_native(path),
            "modified": modified,
            "seconds_since_last_write": round(max(0.0, time.time() - modified), 1),
        }

    def check(self, run: str) -> dict[str, Any]:
        """The diagnosis of a run."""
        report = replay(self.path_of(run), project=self.project, options=self._options()).report
        whole = report.to_json()
        return {
            "untrusted": UNTRUSTED,
            "run": bounded(whole["run"]),
            "verdict": bounded(whole["verdict"]),
            "causes": bounded(whole["causes"]),
            **bounded_findings(report),
            "coverage": bounded(whole["coverage"]),
            "treatments": bounded(whole["treatments"][-10:]),
            "notes": bounded(whole["notes"]),
        }

    def snapshot(self, run: str, around: int | None, window: int, responses: int) -> dict[str, Any]:
        """The state around a step."""
        return step_snapshot(
            self.path_of(run),
            SnapshotRequest(around, window, responses),
            project=self.project,
            options=self._options(),
        )

    def _options(self) -> ReadOptions:
        return ReadOptions(mapping=dict(self.project.mapping))

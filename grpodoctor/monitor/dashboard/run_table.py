"""The table of runs: found and examined one after another, kept until a run's files change."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from grpodoctor.monitor.dashboard.probe_files import PROBE_FILE
from grpodoctor.monitor.dashboard.run_files import FileState, file_state, names_of
from grpodoctor.monitor.dashboard.run_summary import RunSummary
from grpodoctor.monitor.dashboard.settings import DashboardSettings
from grpodoctor.support.worker_process import WorkerProcess

_PROCESS = "grpodoctor.monitor.dashboard.summary_process"
_MOST_SECONDS = 600.0
"""Longest examination of one run, or search of one folder."""
_SEARCH_SECONDS = 30.0
"""Time between two searches for new runs."""
_REST_FACTOR = 10.0
"""A run that grows is examined again after so many times the time that it took."""
_IDLE_SECONDS = 5.0
"""The process examines nothing while no page asked for so long."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run in the table."""

    key: str
    """Name in menus and addresses: the name of the path on the command line, and the path below."""
    path: Path
    summary: RunSummary | None = None
    """None until the run was examined."""
    state: FileState | None = field(default=None, compare=False)
    """State of the files that were examined."""
    due: float = field(default=0.0, compare=False)
    """Time on the clock before which a run that has changed is not examined again."""


class RunTable:
    """The runs at the paths of the command line.

    Args:
        settings: the paths, and how to read them.
    """

    def __init__(self, settings: DashboardSettings) -> None:
        self._settings = settings
        self._json = settings.model_dump_json()
        self._names = names_of(settings.paths)
        self._worker = WorkerProcess(_PROCESS)
        self._rows: dict[Path, RunRow] = {}
        self._searched = 0.0
        self._asked = 0.0
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self.is_searched = False
        """Whether all folders were searched at least once."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths of the command line."""
        return self._settings.paths

    @property
    def rows(self) -> tuple[RunRow, ...]:
        """The runs found so far, in the order of their names."""
        return tuple(sorted(self._rows.values(), key=lambda row: row.key))

    def refresh(self, wait_seconds: float = 0.0) -> tuple[RunRow, ...]:
        """Let the process examine what has changed, and return the runs found so far.

        Args:
            wait_seconds: longest wait for the search of the folders.
        """
        self._asked = time.monotonic()
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
        deadline = time.monotonic() + wait_seconds
        while not self.is_searched and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.rows

    def close(self) -> None:
        """End the process that examines."""
        self._asked = -math.inf
        self._worker.close(wait_seconds=0.0)

    def path_of(self, key: str) -> Path | None:
        """The path of the run with this key, found or not; None if it is outside the paths.

        A deep link names its run before the folders have been searched.
        """
        known = next((row.path for row in self._rows.values() if row.key == key), None)
        if known is not None or not key:
            return known
        with suppress(OSError, ValueError):  # a name that no file can have
            return next(self._paths_with(key), None)
        return None

    def _paths_with(self, key: str) -> Iterator[Path]:
        for root, name in self._names.items():
            rest = None if key == name else key.removeprefix(f"{name}/")
            if rest != key:
                path = (root / rest if rest else root).resolve()
                if path.is_relative_to(root) and path.exists():
                    yield path

    def _key(self, path: Path, root: Path) -> str:
        return "/".join((self._names[root], *path.relative_to(root).parts))

    # In the thread

    def _work(self) -> None:
        """Search and examine until nothing is left to do, or no page asks any more."""
        if time.monotonic() - self._searched > _SEARCH_SECONDS or not self.is_searched:
            self._search()
        while time.monotonic() - self._asked < _IDLE_SECONDS:
            row = self._next()
            if row is None:
                return
            self._examine(row)

    def _search(self) -> None:
        found: dict[Path, RunRow] = {}
        for root in self._names:
            for each in self._runs_at(root):
                if each not in found:
                    found[each] = self._rows.get(each, RunRow(self._key(each, root), each))
            self._rows = {**self._rows, **found}
        self._rows = found
        self._searched, self.is_searched = time.monotonic(), True

    def _runs_at(self, path: Path) -> Sequence[Path]:
        if path.name == PROBE_FILE:
            return []
        if not path.is_dir():
            return [path]
        reply = self._request({"folder": str(path)})
        return [Path(each) for each in reply] if isinstance(reply, list) else [path]

    def _next(self) -> RunRow | None:
        """The run to examine next: never examined ones first, the latest written first."""
        now = time.monotonic()
        fresh, changed = [], []
        for row in self._rows.values():
            state = file_state(row.path)
            if row.summary is None:
                fresh.append((state.newest, row.key, row))
            elif state != row.state and now >= row.due:
                changed.append((state.newest, row.key, row))
        candidates = fresh or changed
        return max(candidates, key=lambda each: each[:2])[2] if candidates else None

    def _examine(self, row: RunRow) -> None:
        began, state = time.monotonic(), file_state(row.path)
        reply = self._request({"path": str(row.path)})
        if isinstance(reply, dict):
            summary = RunSummary.from_json(reply)
        else:
            summary = RunSummary("unreadable", str(reply), written=state.newest)
        now = time.monotonic()
        due = now + _REST_FACTOR * (now - began)
        self._rows[row.path] = replace(row, summary=summary, state=state, due=due)

    def _request(self, request: dict[str, str]) -> object:
        """The reply of the process, or why there is none."""
        try:
            return self._worker.request({**request, "settings": self._json}, _MOST_SECONDS)
        except TimeoutError:
            return f"the examination took longer than {_MOST_SECONDS:.0f} seconds"
        except EOFError:
            return "the process that examines runs ended unexpectedly"

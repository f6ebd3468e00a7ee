"""Examine runs for `check`: one run, or several with a line per finished run."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from grpodoctor.support.numbers import count_of
from grpodoctor.support.progress import DELAY_SECONDS, Progress, progress_bar

if TYPE_CHECKING:
    from grpodoctor.monitor.project_settings import ProjectSettings
    from grpodoctor.monitor.replay import Origin
    from grpodoctor.monitor.report import Report
    from grpodoctor.monitor.report_data import ReportData
    from grpodoctor.report.run.comparison_view import UnreadableRun
    from grpodoctor.runs.reading.read_options import ReadOptions


@dataclass(frozen=True)
class ExaminationSettings:
    """The options that apply to each run."""

    select: tuple[str, ...]
    ignore: tuple[str, ...]
    framework: str | None
    project: ProjectSettings
    options: ReadOptions
    progress: Progress | None = None
    """Receives the progress of reading; None draws a separate bar."""

    def bar(self, description: str) -> AbstractContextManager[Progress]:
        """A progress bar in bytes, or the given receiver of the progress."""
        if self.progress is None:
            return progress_bar(description, in_bytes=True)
        return nullcontext(self.progress)


@dataclass
class ExaminedRuns:
    """The results of several runs."""

    total: int = 0
    """Paths to examine; each has a run, or a log of several."""
    finished: int = 0
    """Paths that were examined."""
    reports: list[Report] = field(default_factory=list)
    unreadable: list[UnreadableRun] = field(default_factory=list)
    interrupted: bool = False
    """Whether the user ended the examination before the last run."""


def examine(path: str, settings: ExaminationSettings, stack: ExitStack) -> ReportData | None:
    """Examine one run, whose files stay available; None if the path holds several runs.

    Raises:
        RunError: if there is no run to read.
    """
    from grpodoctor.errors import MixedRunsError
    from grpodoctor.support.files.remote_stores import is_remote
    from grpodoctor.support.files.streams import descriptor_of

    if not is_remote(path) and _holds_native_runs(Path(path)):
        return None
    try:
        return _replay(path, settings, stack)
    except MixedRunsError:
        if is_remote(path) or descriptor_of(path) is not None:
            raise
        return None


def _holds_native_runs(folder: Path) -> bool:
    from grpodoctor.runs.reading.opening import is_native
    from grpodoctor.runs.reading.run_discovery import has_native_run

    try:
        return folder.is_dir() and not is_native(folder) and has_native_run(folder)
    except OSError:  # the error is reported when the run is read
        return False


def _replay(path: str, settings: ExaminationSettings, stack: ExitStack) -> ReportData:
    from grpodoctor.monitor.replay import Origin, replay
    from grpodoctor.support.files.remote_stores import is_remote
    from grpodoctor.support.files.streams import copied_stream, descriptor_of

    local, origin, options = Path(path), None, settings.options
    descriptor = descriptor_of(path)
    if is_remote(path):
        local, origin, options = _downloaded(path, settings, stack)
    elif descriptor is not None:
        bar = stack.enter_context(settings.bar("reading the stream"))
        local = stack.enter_context(copied_stream(path, descriptor, bar))
        origin = Origin("standard input" if descriptor == 0 else path)
    elif options.where:
        chosen = ", ".join(f"{column}={value}" for column, value in options.where.items())
        origin = Origin(f"{path} ({chosen})", is_copy=False)
    with (
        settings.bar("reading") as progress,
        _named_in_errors(local, origin.address if origin else path),
    ):
        return replay(
            local,
            select=settings.select,
            ignore=settings.ignore,
            framework=settings.framework,
            project=settings.project,
            options=replace(options, progress=progress),
            origin=origin,
        )


@contextmanager
def _named_in_errors(copy: Path, name: str) -> Iterator[None]:
    """Errors name the stream or the address that the user gave, not its temporary copy."""
    from grpodoctor.errors import RunError

    try:
        yield
    except RunError as error:
        texts = (text.replace(str(copy), name) for text in (error.what, error.where, error.remedy))
        what, where, remedy = texts
        raise type(error)(what, where=where, remedy=remedy) from error


def _downloaded(
    url: str, settings: ExaminationSettings, stack: ExitStack
) -> tuple[Path, Origin, ReadOptions]:
    """Download a remote run until the stack closes; returns its place, origin and read options."""
    from grpodoctor.monitor.replay import Origin
    from grpodoctor.runs.reading.remote import local_run

    with settings.bar("downloading") as progress:
        run = stack.enter_context(local_run(url, progress))
    options = replace(settings.options, remote_dumps=run.remote_dumps)
    return run.path, Origin(url, run.notes), options


def examine_all(paths: Sequence[str], settings: ExaminationSettings) -> ExaminedRuns:
    """Examine several runs; a path that cannot be read does not end the others.

    Raises:
        KeyboardInterrupt: if the user ends the examination before the first run is finished.
    """
    log = _FinishedLines()
    places = _expanded(paths, settings.options)
    found = ExaminedRuns(total=len(places))
    log.found(len(places))
    with progress_bar("examining", total=len(places)) as bar:
        try:
            for number, path in enumerate(places):
                bar.update(number, detail=_short(path))
                counts = len(found.reports), len(found.unreadable)
                _examine_into(found, path, replace(settings, progress=_Share(bar, number)))
                kinds = [report.diagnosis.verdict.kind for report in found.reports[counts[0] :]]
                failures = ["not readable"] * (len(found.unreadable) - counts[1])
                found.finished = number + 1
                log.finished(found.finished, len(places), path, [*kinds, *failures])
        except KeyboardInterrupt:
            if not found.reports:
                raise
            found.interrupted = True
    return found


class _Share:
    """Passes the progress of one run on as its share of the progress of all runs."""

    def __init__(self, whole: Progress, number: int) -> None:
        self._whole, self._number, self._total = whole, number, 0.0

    def update(
        self, completed: float, *, total: float | None = None, detail: str | None = None
    ) -> None:
        """Report progress."""
        del detail  # the name of the run stays next to the bar
        self._total = self._total if total is None else total
        share = min(completed / self._total, 1.0) if self._total > 0 else 0.0
        self._whole.update(self._number + share)


class _FinishedLines:
    """One line per finished run on stderr if it is no terminal, which has a progress bar.

    Work of a few seconds prints no line.
    """

    def __init__(self) -> None:
        self._started = time.monotonic()

    def found(self, count: int) -> None:
        """Say how many runs there are."""
        self._print(f"{count_of(count, 'run')} found")

    def finished(self, number: int, total: int, path: str, verdicts: Sequence[str]) -> None:
        """Say what a run is."""
        self._print(f"{number} of {total} runs read: {path[:200]}: {', '.join(verdicts)}")

    def _print(self, text: str) -> None:
        from grpodoctor.support.safe_text import plain

        if not sys.stderr.isatty() and time.monotonic() - self._started >= DELAY_SECONDS:
            print(plain(text), file=sys.stderr, flush=True)


def _short(path: str) -> str:
    """The last two parts of a path, which fit next to a bar."""
    return "/".join(path.rstrip("/").split("/")[-2:])


def _examine_into(examined: ExaminedRuns, path: str, settings: ExaminationSettings) -> None:
    """Add the report of a run, or of each run in a log that has several."""
    from grpodoctor.errors import MixedRunsError, RunError
    from grpodoctor.report.run.comparison_view import UnreadableRun

    try:
        with ExitStack() as stack:
            examined.reports.append(_replay(path, settings, stack).report)
    except RunError as error:
        runs = _each_run_in(path, settings) if isinstance(error, MixedRunsError) else []
        for one in runs:
            _examine_into(examined, path, one)
        if not runs:
            examined.unreadable.append(UnreadableRun(path, error.what))


def _each_run_in(path: str, settings: ExaminationSettings) -> list[ExaminationSettings]:
    """The settings to read each run of a log that has several; none for a directory."""
    from grpodoctor.runs.reading.run_discovery import runs_in_log

    if settings.options.where or not Path(path).is_file():
        return []
    return [
        replace(settings, options=replace(settings.options, where=where))
        for where in runs_in_log(Path(path), partial(_warn_of_note, path))
    ]


def _expanded(paths: Sequence[str], options: ReadOptions) -> list[str]:
    """The paths, each directory of several runs replaced by its runs."""
    from grpodoctor.runs.reading.run_discovery import runs_in
    from grpodoctor.support.files.remote_stores import is_remote

    expanded: list[str] = []
    with progress_bar("searching for runs") as progress:
        for path in paths:
            runs: list[str] = []
            if not is_remote(path) and Path(path).is_dir():
                warn = partial(_warn_of_cut_off, path)
                found = runs_in(Path(path), options, progress, on_cut_off=warn)
                runs = list(map(str, found))
            expanded += runs or [path]
    return list(dict.fromkeys(expanded))


def _warn_of_cut_off(path: str, left: Sequence[Path]) -> None:
    from grpodoctor.errors import name_some
    from grpodoctor.support.safe_text import plain

    names = name_some([entry.name for entry in left])
    print(
        f"warning: {plain(path[:200])} has too many files to find all runs; not or only partly "
        f"searched: {plain(names)} ({len(left)} entries); pass the directories of the runs",
        file=sys.stderr,
    )


def _warn_of_note(path: str, note: str) -> None:
    from grpodoctor.support.safe_text import plain

    print(f"warning: {note} ({plain(path[:200])})", file=sys.stderr)

"""The run to watch if the user named none or several: that of a process, or a choice."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from grpodoctor.errors import InputError

if TYPE_CHECKING:
    from grpodoctor.runs.reading.nearby_runs import NearbyRun

_NO_RUN = 2
_MOST_LISTED = 20


def choose_run(pid: int | None, *, has_screen: bool) -> Path:
    """The run of a process, or the one that the user chooses.

    Without a screen, the runs are listed with their commands.

    Args:
        pid: the process; the runs below the current directory are offered if None.
        has_screen: whether the user can choose.

    Raises:
        InputError: if there is none.
        Exit: if no run is chosen.
    """
    from grpodoctor.support.progress import progress_bar

    folder = Path.cwd()
    with progress_bar("looking for runs"):
        runs = _of_process(pid) if pid is not None else _nearby(folder)
    if pid is not None and len(runs) == 1:
        return runs[0].path
    return _chosen(runs, folder, has_screen=has_screen)


def run_in(path: Path, *, has_screen: bool) -> Path:
    """The path itself, or the run that the user chooses if it is a directory of several runs.

    Args:
        path: the path that the user named; it need not exist.
        has_screen: whether the user can choose.

    Raises:
        Exit: if no run is chosen.
    """
    from grpodoctor.runs.reading.nearby_runs import nearby_runs
    from grpodoctor.runs.reading.opening import is_native
    from grpodoctor.runs.reading.read_options import ReadOptions
    from grpodoctor.runs.reading.run_discovery import has_native_run, is_one_run

    try:
        if not path.is_dir() or is_native(path):
            return path
        if not has_native_run(path) and is_one_run(path, ReadOptions()):
            return path
        runs = nearby_runs(path)
    except OSError:  # the error is reported when the run is read
        return path
    if len(runs) < 2:
        return runs[0].path if runs else path
    return _chosen(runs, Path.cwd(), has_screen=has_screen)


def _chosen(runs: Sequence[NearbyRun], folder: Path, *, has_screen: bool) -> Path:
    if not has_screen:
        _print_commands(runs, folder)
        raise typer.Exit(_NO_RUN)
    from grpodoctor.cli.watch_screen.run_choice import RunChoice
    from grpodoctor.cli.watch_screen.terminal_session import run_in_terminal

    chosen: Path | None = run_in_terminal(RunChoice(runs, folder))
    if chosen is None:
        raise typer.Exit(_NO_RUN)
    return chosen


def _nearby(folder: Path) -> list[NearbyRun]:
    from grpodoctor.runs.reading.nearby_runs import nearby_runs

    if runs := nearby_runs(folder):
        return runs
    raise InputError(
        "no run was found",
        where=str(folder),
        remedy="name one: grpodoctor watch RUN, or grpodoctor watch --pid PID",
    )


def _of_process(pid: int) -> list[NearbyRun]:
    from grpodoctor.runs.reading.nearby_runs import NearbyRun
    from grpodoctor.runs.reading.process_runs import runs_of_process

    return [NearbyRun(path, path.stat().st_mtime) for path in runs_of_process(pid)]


def _print_commands(runs: Sequence[NearbyRun], folder: Path) -> None:
    from grpodoctor.cli.watch_screen.entries import shown_path, written_ago

    for run in runs[:_MOST_LISTED]:
        command = f"grpodoctor watch {shlex.quote(shown_path(run.path, folder))}"
        print(f"{command}  # {written_ago(run.written_at)}")
    if len(runs) > _MOST_LISTED:
        print(f"and {len(runs) - _MOST_LISTED} more")

"""`grpodoctor check`: diagnose runs from their logs and rollout dumps."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grpodoctor.cli.options import (
    ConfigOption,
    ExitZero,
    FailOn,
    FailOnOption,
    FormatOption,
    FrameworkOption,
    Ignore,
    IsolatedOption,
    JsonOption,
    MapOption,
    RayOption,
    RunConfigOption,
    RunReportFormatOption,
    Select,
    WhereOption,
    fails,
    project_settings,
    read_options,
    split_codes,
)
from grpodoctor.cli.run_output import run_report_format, write_reports
from grpodoctor.support.progress import progress_bar

if TYPE_CHECKING:
    from grpodoctor.monitor.project_settings import ProjectSettings
    from grpodoctor.monitor.replay import Origin
    from grpodoctor.monitor.report import Report
    from grpodoctor.monitor.report_data import ReportData
    from grpodoctor.report.run.comparison_view import UnreadableRun
    from grpodoctor.runs.reading.read_options import ReadOptions

_NOT_EXAMINED = 2

PathsArgument = Annotated[
    list[str],
    typer.Argument(
        help="Run directory or log of any framework; also an s3://, gs://, hf:// or https:// "
        "address, or - for standard input. Several paths, or a directory of runs, give one line "
        "per run."
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(help="Report file: .md, .html, .json, .txt, .sarif or .xml. \\[default: stdout]"),
]
VerboseOption = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Show all rules, all metrics and how the log was read."),
]
SuggestMapOption = Annotated[
    bool,
    typer.Option(
        "--suggest-map",
        help="Suggest metrics for unknown log keys, as lines for the settings file.",
    ),
]
WriteMapOption = Annotated[
    bool,
    typer.Option(
        "--write-map",
        help="Write the metrics of --suggest-map, which this option implies, to the settings file.",
    ),
]


def check(
    paths: PathsArgument,
    output_format: RunReportFormatOption = None,
    as_json: JsonOption = False,
    output: OutputOption = None,
    verbose: VerboseOption = False,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: FailOnOption = FailOn.warning,
    exit_zero: ExitZero = False,
    framework: FrameworkOption = None,
    log_format: FormatOption = None,
    run_config: RunConfigOption = None,
    mapping: MapOption = None,
    where: WhereOption = None,
    ray: RayOption = None,
    suggest_map: SuggestMapOption = False,
    write_map: WriteMapOption = False,
    config: ConfigOption = None,
    isolated: IsolatedOption = False,
) -> None:
    """Diagnose a run from its logs and rollout dumps.

    The first line is the verdict: healthy, flat, solved, sick, too short or not examined.

    Exit codes: 0 no active finding at or above --fail-on, 1 at least one,
    2 not readable or not examined, 3 a defect in grpodoctor.
    """
    from grpodoctor.report.run.view import view_of

    chosen_format = run_report_format(output_format, as_json, output)
    project = project_settings(config, isolated=isolated, may_be_missing=write_map)
    settings = _Settings(
        select=split_codes(select),
        ignore=split_codes(ignore),
        framework=framework,
        project=project,
        options=read_options(log_format, run_config, mapping, ray, project, where),
    )
    if suggest_map or write_map:
        _suggest_map(paths, settings, write=write_map, isolated=isolated)
        return
    with ExitStack() as stack:
        data = _examine(paths[0], settings, stack) if len(paths) == 1 else None
        if data is not None:
            _warn_of_damage(data.report)
            view, reports, has_unreadable = view_of(data, verbose=verbose), [data.report], False
        else:
            from grpodoctor.report.run.comparison_view import view_of_runs

            reports, unreadable = _examine_all(paths, settings)
            root = _common_folder([report.run.path for report in reports])
            view, has_unreadable = view_of_runs(reports, unreadable, root), bool(unreadable)
        write_reports(view, reports, chosen_format, output)
    code = _exit_code(reports, fail_on, has_unreadable=has_unreadable)
    if code and not exit_zero:
        raise typer.Exit(code)


def _suggest_map(paths: Sequence[str], settings: _Settings, *, write: bool, isolated: bool) -> None:
    """Suggest a mapping for a local log.

    Raises:
        ConfigError: if there are several paths, a remote one or a stream, or the settings files
            are ignored and one is to be written.
    """
    from grpodoctor.cli.suggest_map import MapTarget, print_suggestions
    from grpodoctor.errors import ConfigError
    from grpodoctor.support.files.remote_stores import is_remote
    from grpodoctor.support.files.streams import descriptor_of

    if write and isolated:
        raise ConfigError(
            "--isolated ignores the settings file that --write-map writes", remedy="remove one"
        )
    if len(paths) > 1 or is_remote(paths[0]) or descriptor_of(paths[0]) is not None:
        raise ConfigError("--suggest-map reads one local log", remedy="pass one path")
    target = MapTarget(settings.project.path or MapTarget.path, write)
    print_suggestions(Path(paths[0]), settings.options, target)


@dataclass(frozen=True)
class _Settings:
    """The options that apply to each run."""

    select: tuple[str, ...]
    ignore: tuple[str, ...]
    framework: str | None
    project: ProjectSettings
    options: ReadOptions


def _examine(path: str, settings: _Settings, stack: ExitStack) -> ReportData | None:
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


def _replay(path: str, settings: _Settings, stack: ExitStack) -> ReportData:
    from grpodoctor.monitor.replay import Origin, replay
    from grpodoctor.support.files.remote_stores import is_remote
    from grpodoctor.support.files.streams import copied_stream, descriptor_of

    local, origin, options = Path(path), None, settings.options
    descriptor = descriptor_of(path)
    if is_remote(path):
        local, origin, options = _downloaded(path, options, stack)
    elif descriptor is not None:
        bar = stack.enter_context(progress_bar("reading the stream", in_bytes=True))
        local = stack.enter_context(copied_stream(path, descriptor, bar))
        origin = Origin("standard input" if descriptor == 0 else path)
    elif options.where:
        chosen = ", ".join(f"{column}={value}" for column, value in options.where.items())
        origin = Origin(f"{path} ({chosen})")
    with (
        progress_bar("reading", in_bytes=True) as progress,
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
    url: str, options: ReadOptions, stack: ExitStack
) -> tuple[Path, Origin, ReadOptions]:
    """Download a remote run until the stack closes; returns its place, origin and read options."""
    from grpodoctor.monitor.replay import Origin
    from grpodoctor.runs.reading.remote import local_run

    with progress_bar("downloading", in_bytes=True) as progress:
        run = stack.enter_context(local_run(url, progress))
    options = replace(options, remote_dumps=run.remote_dumps)
    return run.path, Origin(url, run.notes), options


def _examine_all(
    paths: Sequence[str], settings: _Settings
) -> tuple[list[Report], list[UnreadableRun]]:
    """Examine several runs; a path that cannot be read does not end the others."""
    reports: list[Report] = []
    unreadable: list[UnreadableRun] = []
    for path in _expanded(paths, settings.options):
        _examine_into(reports, unreadable, path, settings)
    return reports, unreadable


def _examine_into(
    reports: list[Report], unreadable: list[UnreadableRun], path: str, settings: _Settings
) -> None:
    """Add the report of a run, or of each run in a log that has several."""
    from grpodoctor.errors import MixedRunsError, RunError
    from grpodoctor.report.run.comparison_view import UnreadableRun

    try:
        with ExitStack() as stack:
            reports.append(_replay(path, settings, stack).report)
    except RunError as error:
        runs = _each_run_in(path, settings) if isinstance(error, MixedRunsError) else []
        for one in runs:
            _examine_into(reports, unreadable, path, one)
        if not runs:
            unreadable.append(UnreadableRun(path, error.what))


def _each_run_in(path: str, settings: _Settings) -> list[_Settings]:
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


def _common_folder(paths: Sequence[str]) -> str:
    """The folder of all runs; empty if they have no common folder."""
    parents = {str(Path(path).parent) for path in paths}
    try:
        folder = os.path.commonpath(parents) if parents else ""
    except ValueError:  # absolute and relative paths
        return ""
    return "" if folder in {"", ".", os.sep} else folder


def _warn_of_damage(report: Report) -> None:
    from grpodoctor.report.run.phrases import damage_line
    from grpodoctor.support.safe_text import plain

    if report.damage_total:
        print(f"warning: {plain(damage_line(report))}", file=sys.stderr)


def _exit_code(reports: Sequence[Report], fail_on: FailOn, *, has_unreadable: bool) -> int:
    """1 if a run has a finding at or above `fail_on`; else 2 if a run was not examined."""
    if any(fails(report.reaches, fail_on, exit_zero=False) for report in reports):
        return 1
    kinds = {report.diagnosis.verdict.kind for report in reports}
    return _NOT_EXAMINED if has_unreadable or not reports or "not examined" in kinds else 0

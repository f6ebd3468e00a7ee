"""`grpodoctor check`: diagnose runs from their logs and rollout dumps."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grpodoctor.cli.examined_runs import (
    ExaminationSettings,
    ExaminedRuns,
    examine,
    examine_all,
)
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
    RunReportFormat,
    RunReportFormatOption,
    Select,
    WhereOption,
    fails,
    project_settings,
    read_options,
    split_codes,
)
from grpodoctor.cli.run_output import run_report_format, write_reports

if TYPE_CHECKING:
    from grpodoctor.monitor.report import Report
    from grpodoctor.report.view import View

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
        help="Suggest metrics for unknown log keys, and print the command that writes them to the "
        "settings file.",
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
    settings = ExaminationSettings(
        select=split_codes(select),
        ignore=split_codes(ignore),
        framework=framework,
        project=project,
        options=read_options(log_format, run_config, mapping, ray, project, where),
    )
    if suggest_map or write_map:
        repeated = _reading_options(config, log_format, run_config, mapping, where)
        _suggest_map(paths, settings, repeated, write=write_map, isolated=isolated)
        return
    with ExitStack() as stack:
        data = examine(paths[0], settings, stack) if len(paths) == 1 else None
        if data is not None:
            if output is not None or chosen_format is not RunReportFormat.text:
                _warn_of_damage(data.report)
            examined = ExaminedRuns(total=1, finished=1, reports=[data.report])
            view = view_of(data, verbose=verbose)
        else:
            examined = examine_all(paths, settings)
            view = _view_of_runs(examined)
            if examined.interrupted:
                _end_early(examined, view, chosen_format, output)
        write_reports(view, examined.reports, chosen_format, output)
    code = _exit_code(examined, fail_on)
    if code and not exit_zero:
        raise typer.Exit(code)


def _reading_options(
    config: Path | None,
    log_format: str | None,
    run_config: Path | None,
    mapping: Sequence[str] | None,
    where: Sequence[str] | None,
) -> tuple[str, ...]:
    """The user's options that decide how a log is read, as words of a command."""
    single = (("--config", config), ("--format", log_format), ("--run-config", run_config))
    several = (("--map", mapping or ()), ("--where", where or ()))
    pairs = [(name, str(value)) for name, value in single if value]
    pairs += [(name, value) for name, values in several for value in values]
    return tuple(word for pair in pairs for word in pair)


def _view_of_runs(examined: ExaminedRuns) -> View:
    from grpodoctor.report.run.comparison_view import view_of_runs

    root = _common_folder([report.run.path for report in examined.reports])
    return view_of_runs(examined.reports, examined.unreadable, root)


def _end_early(
    examined: ExaminedRuns, view: View, chosen_format: RunReportFormat, output: Path | None
) -> None:
    """Print the runs that are finished; programs and files get no incomplete report.

    Raises:
        KeyboardInterrupt: always.
    """
    if output is None and chosen_format is RunReportFormat.text:
        write_reports(view, examined.reports, chosen_format, None)
    count = f"{examined.finished} of {examined.total} runs"
    print(f"interrupted: {count} were examined", file=sys.stderr)
    raise KeyboardInterrupt


def _suggest_map(
    paths: Sequence[str],
    settings: ExaminationSettings,
    repeated: tuple[str, ...],
    *,
    write: bool,
    isolated: bool,
) -> None:
    """Suggest a mapping for a local log.

    Args:
        paths: the log; several are an error.
        settings: how to read it.
        repeated: the user's options, for the command that writes the mapping.
        write: whether to write it.
        isolated: whether settings files are ignored.

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
    target = MapTarget(settings.project.path or MapTarget.path, write, repeated)
    print_suggestions(Path(paths[0]), settings.options, target)


def _common_folder(paths: Sequence[str]) -> str:
    """The folder of all runs; empty if they have no common folder."""
    parents = {str(Path(path).parent) for path in paths}
    try:
        folder = os.path.commonpath(parents) if parents else ""
    except ValueError:  # absolute and relative paths
        return ""
    return "" if folder in {"", ".", os.sep} else folder


def _warn_of_damage(report: Report) -> None:
    """Warn on stderr; a text report on stdout already contains the warning."""
    from grpodoctor.report.run.phrases import damage_line
    from grpodoctor.support.safe_text import plain

    if report.damage_total:
        print(f"warning: {plain(damage_line(report))}", file=sys.stderr)


def _exit_code(examined: ExaminedRuns, fail_on: FailOn) -> int:
    """1 if a run has a finding at or above `fail_on`; else 2 if a run was not examined."""
    reports = examined.reports
    if any(fails(report.reaches, fail_on, exit_zero=False) for report in reports):
        return 1
    kinds = {report.diagnosis.verdict.kind for report in reports}
    has_unreadable = bool(examined.unreadable)
    return _NOT_EXAMINED if has_unreadable or not reports or "not examined" in kinds else 0

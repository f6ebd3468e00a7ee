"""`grpodoctor check`: diagnose a run from its logs and rollout dumps."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from grpodoctor.cli.options import (
    ExitZero,
    FailOn,
    FailOnOption,
    FormatOption,
    FrameworkOption,
    Ignore,
    JsonOption,
    MapOption,
    RayOption,
    ReportFormatOption,
    RunConfigOption,
    Select,
    fails,
    read_options,
    split_codes,
)
from grpodoctor.cli.output import report_format, write_report
from grpodoctor.support.progress import progress_bar


def check(
    path: Annotated[
        str,
        typer.Argument(
            help="Run directory or log of any framework; also an s3://, gs://, hf:// or https:// "
            "address."
        ),
    ],
    output_format: ReportFormatOption = None,
    as_json: JsonOption = False,
    output: Annotated[
        Path | None,
        typer.Option(help="Report file: .md, .html, .json or .txt. \\[default: stdout]"),
    ] = None,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: FailOnOption = FailOn.warning,
    exit_zero: ExitZero = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show everything that was examined.")
    ] = False,
    framework: FrameworkOption = None,
    log_format: FormatOption = None,
    run_config: RunConfigOption = None,
    mapping: MapOption = None,
    ray: RayOption = None,
) -> None:
    """Diagnose a run from its logs and rollout dumps.

    Exit codes: 0 no finding at or above --fail-on, 1 at least one, 2 unusable input.
    """
    from grpodoctor.monitor.replay import RemoteOrigin, replay
    from grpodoctor.report.run.phrases import damage_line
    from grpodoctor.report.run.view import view_of
    from grpodoctor.runs.reading.remote import local_run
    from grpodoctor.support.remote_stores import is_remote
    from grpodoctor.support.safe_text import plain

    chosen_format = report_format(output_format, as_json, output)
    options = read_options(log_format, run_config, mapping, ray)
    with ExitStack() as stack:
        with progress_bar("downloading", in_bytes=True) as progress:
            run = stack.enter_context(local_run(path, progress))
        with progress_bar("reading", in_bytes=True) as progress:
            data = replay(
                run.path,
                select=split_codes(select),
                ignore=split_codes(ignore),
                framework=framework,
                options=replace(options, remote_dumps=run.remote_dumps, progress=progress),
                origin=RemoteOrigin(path, run.notes) if is_remote(path) else None,
            )
        if data.report.damage_total:
            print(f"warning: {plain(damage_line(data.report))}", file=sys.stderr)
        write_report(view_of(data, verbose=verbose), chosen_format, output)
    if fails(data.report.reaches, fail_on, exit_zero):
        raise typer.Exit(1)

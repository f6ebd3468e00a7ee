"""`grpodoctor check`: diagnose a run from what it left on disk."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    ReportFormat,
    ReportFormatOption,
    RunConfigOption,
    Select,
    fails,
    read_options,
    split_codes,
)
from grpodoctor.cli.output import write_report
from grpodoctor.cli.pages import json_text

if TYPE_CHECKING:
    from grpodoctor.monitor.report_data import ReportData
    from grpodoctor.runs.records import StepRecord

_PATIENCE_SECONDS = 2.0
_LOOK_EVERY = 64


_SUFFIXES = {
    ".json": ReportFormat.json,
    ".md": ReportFormat.markdown,
    ".markdown": ReportFormat.markdown,
    ".html": ReportFormat.html,
    ".htm": ReportFormat.html,
}


def check(
    path: Annotated[
        str,
        typer.Argument(
            help="A run directory, or the logs that any framework left; "
            "also s3://, gs://, hf:// and https://."
        ),
    ],
    output_format: ReportFormatOption = None,
    as_json: JsonOption = False,
    output: Annotated[
        Path | None, typer.Option(help="Write the report to this file instead of stdout.")
    ] = None,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: FailOnOption = FailOn.warning,
    exit_zero: ExitZero = False,
    framework: FrameworkOption = None,
    log_format: FormatOption = None,
    run_config: RunConfigOption = None,
    mapping: MapOption = None,
    ray: RayOption = None,
) -> None:
    """Diagnose a run from its logs and rollout dumps.

    Exit codes: 0 nothing at or above --fail-on, 1 findings, 2 the input could not be used.
    """
    from grpodoctor.monitor.replay import RemoteOrigin, replay
    from grpodoctor.runs.reading.remote import brought
    from grpodoctor.support.remote_stores import is_remote

    with _download_shown() as told, brought(path, told) as run:
        data = replay(
            run.path,
            select=split_codes(select),
            ignore=split_codes(ignore),
            framework=framework,
            options=replace(
                read_options(log_format, run_config, mapping, ray), elsewhere=run.elsewhere
            ),
            watch_steps=_with_progress,
            origin=RemoteOrigin(path, run.notes) if is_remote(path) else None,
        )
        _mention_damage(data)
        chosen = ReportFormat.json if as_json else output_format or _format_of(output)
        rendered = _render(data, chosen, to_file=output is not None)
    if output is None:
        sys.stdout.write(rendered)
    else:
        write_report(output, rendered)
    if fails(data.report.reaches, fail_on, exit_zero):
        raise typer.Exit(1)


@contextmanager
def _download_shown() -> Iterator[Callable[[int, int], None] | None]:
    """What shows how much of a run was brought here, on a terminal and once it takes long."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("bringing the run here"), BarColumn(), DownloadColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task("bringing", total=None)
    patience_ends = time.monotonic() + _PATIENCE_SECONDS

    def told(here: int, total: int) -> None:
        progress.update(task, completed=here, total=total, visible=here < total)
        if time.monotonic() > patience_ends:
            progress.start()

    try:
        yield told
    finally:
        progress.stop()


def _format_of(output: Path | None) -> ReportFormat:
    suffix = output.suffix.lower() if output else ""
    return _SUFFIXES.get(suffix, ReportFormat.text)


def _render(data: ReportData, output_format: ReportFormat, *, to_file: bool) -> str:
    if output_format is ReportFormat.text:
        from grpodoctor.cli.terminal import colour_wanted, columns
        from grpodoctor.report.run import text

        if to_file:
            return text.render(data)
        return text.render(data, width=columns(), colour=colour_wanted())
    if output_format is ReportFormat.markdown:
        from grpodoctor.report.run import markdown

        return markdown.render(data)
    if output_format is ReportFormat.html:
        from grpodoctor.report.run import html

        return html.render(data)
    return json_text(data.report.to_json()) + "\n"


def _mention_damage(data: ReportData) -> None:
    if data.report.damage_total:
        from grpodoctor.report.run.phrases import damage_line
        from grpodoctor.support.safe_text import plain

        print(f"warning: {plain(damage_line(data.report))}", file=sys.stderr)


def _with_progress(steps: Iterable[StepRecord]) -> Iterator[StepRecord]:
    """The same steps; on a terminal, with a progress line once it takes long."""
    if not sys.stderr.isatty():
        yield from steps
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("step {task.fields[step]}"), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task("reading", total=None, step=0)
    patience_ends = time.monotonic() + _PATIENCE_SECONDS
    try:
        for count, record in enumerate(steps):
            if count % _LOOK_EVERY == 0 and time.monotonic() > patience_ends:
                progress.start()
                progress.update(task, step=record.step)
            yield record
    finally:
        progress.stop()

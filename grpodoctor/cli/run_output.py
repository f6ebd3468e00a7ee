"""How `check` writes its reports: for people, for programs and for continuous integration."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grpodoctor.cli.options import ReportFormat, RunReportFormat
from grpodoctor.cli.output import FORMATS_BY_SUFFIX, render, suffix_error, write_text

if TYPE_CHECKING:
    from grpodoctor.monitor.report import Report
    from grpodoctor.report.view import View

CI_FORMATS_BY_SUFFIX = {
    ".sarif": RunReportFormat.sarif,
    ".xml": RunReportFormat.junit,
}


def run_report_format(
    output_format: RunReportFormat | None, as_json: bool, output: Path | None
) -> RunReportFormat:
    """The format of a report about runs.

    Args:
        output_format: value of `--output-format`.
        as_json: value of `--json`, which takes precedence.
        output: value of `--output`; its suffix decides if no format was given.

    Raises:
        ConfigError: if no format was given and the suffix stands for none.
    """
    if as_json or output_format:
        return RunReportFormat.json if as_json else output_format or RunReportFormat.text
    suffix = output.suffix.lower() if output else ""
    known = {each: RunReportFormat(chosen) for each, chosen in FORMATS_BY_SUFFIX.items()}
    known |= CI_FORMATS_BY_SUFFIX
    if suffix and suffix not in known:
        raise suffix_error(suffix, output, ".md, .html, .json, .txt, .sarif or .xml")
    return known.get(suffix, RunReportFormat.text)


def write_reports(
    view: View, reports: Sequence[Report], output_format: RunReportFormat, output: Path | None
) -> None:
    """Write the report about one or several runs.

    Args:
        view: the report as a view.
        reports: the same for the formats of continuous integration.
        output_format: the format.
        output: the file; stdout if None.

    Raises:
        InputError: if the file cannot be written.
    """
    write_text(_rendered(view, reports, output_format, to_terminal=output is None), output)


def _rendered(
    view: View, reports: Sequence[Report], output_format: RunReportFormat, *, to_terminal: bool
) -> str:
    if output_format is RunReportFormat.github:
        from grpodoctor.report.ci import github

        return github.render(reports, _repository())
    if output_format is RunReportFormat.junit:
        from grpodoctor.report.ci import junit

        return junit.render(reports)
    if output_format is RunReportFormat.sarif:
        from grpodoctor.cli.pages import json_text
        from grpodoctor.report.ci import sarif

        return json_text(sarif.to_json(reports, _repository())) + "\n"
    return render(view, ReportFormat(output_format), to_terminal=to_terminal)


def _repository() -> Path:
    """The checkout of the repository: the one of a GitHub job, else the working directory."""
    return Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())

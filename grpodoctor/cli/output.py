"""Where and in which format a command writes its report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from grpodoctor.cli.options import ReportFormat

if TYPE_CHECKING:
    from grpodoctor.errors import ConfigError
    from grpodoctor.report.view import View

FORMATS_BY_SUFFIX = {
    ".md": ReportFormat.markdown,
    ".html": ReportFormat.html,
    ".json": ReportFormat.json,
    ".txt": ReportFormat.text,
    ".markdown": ReportFormat.markdown,
    ".htm": ReportFormat.html,
}


def report_format(
    output_format: ReportFormat | None, as_json: bool, output: Path | None
) -> ReportFormat:
    """The format of a report.

    Args:
        output_format: value of `--output-format`.
        as_json: value of `--json`, which takes precedence.
        output: value of `--output`; its suffix decides if no format was given. A name without a
            suffix, such as a pipe, gets text.

    Raises:
        ConfigError: if no format was given and the suffix stands for none.
    """
    if as_json or output_format:
        return ReportFormat.json if as_json else output_format or ReportFormat.text
    suffix = output.suffix.lower() if output else ""
    if suffix and suffix not in FORMATS_BY_SUFFIX:
        raise suffix_error(suffix, output, ".md, .html, .json or .txt")
    return FORMATS_BY_SUFFIX.get(suffix, ReportFormat.text)


def suffix_error(suffix: str, output: Path | None, known: str) -> ConfigError:
    """The error for a suffix that stands for no format.

    Args:
        suffix: the suffix.
        output: value of `--output`.
        known: the valid suffixes.
    """
    from grpodoctor.errors import ConfigError

    return ConfigError(
        f"no report format has the suffix {suffix[:20]!r}",
        where=f"--output {output}",
        remedy=f"use {known}, or give --output-format",
    )


def render(view: View, output_format: ReportFormat, *, to_terminal: bool) -> str:
    """A report in any format.

    Args:
        view: the report.
        output_format: the format.
        to_terminal: whether text may use the width and the colors of the terminal.
    """
    if output_format is ReportFormat.json:
        from grpodoctor.cli.pages import json_text

        return json_text(view.json()) + "\n"
    if output_format is ReportFormat.markdown:
        from grpodoctor.report import markdown

        return markdown.render(view)
    if output_format is ReportFormat.html:
        from grpodoctor.report import html

        return html.render(view)
    from grpodoctor.cli.terminal import columns, supports_color
    from grpodoctor.report import text

    if to_terminal:
        return text.render(view, width=columns(), color=supports_color())
    return text.render(view)


def write_report(view: View, output_format: ReportFormat, output: Path | None) -> None:
    """Write a report to a file and say so on stderr, or print it if no file was given.

    Raises:
        InputError: if the file cannot be written.
    """
    write_text(render(view, output_format, to_terminal=output is None), output)


def write_text(rendered: str, output: Path | None) -> None:
    """Write a rendered report to a file and say so on stderr, or print it if no file was given.

    Raises:
        InputError: if the file cannot be written.
    """
    if output is None:
        sys.stdout.write(rendered)
        sys.stdout.flush()
        return
    from grpodoctor.errors import InputError
    from grpodoctor.support.safe_text import plain

    try:
        _write(output.resolve(), rendered)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(
            f"cannot write the report: {reason}",
            where=str(output),
            remedy="name a file in a directory that you can write to",
        ) from error
    print(f"report written to {plain(str(output))}", file=sys.stderr)


def _write(target: Path, text: str) -> None:
    """Replace a regular file atomically; write to a device or a pipe directly."""
    from grpodoctor.support.files import atomic_files

    if target.exists() and not target.is_file():
        target.write_text(text, encoding="utf-8")
    else:
        atomic_files.write_text(target, text)

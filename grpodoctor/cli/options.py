"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from grpodoctor.monitor.project_settings import ProjectSettings
    from grpodoctor.runs.reading.read_options import ReadOptions


class FailOn(StrEnum):
    """Lowest severity that makes the exit code 1."""

    info = "info"
    warning = "warning"
    critical = "critical"
    never = "never"


class PageFormat(StrEnum):
    """Output format of a list or a manual page."""

    text = "text"
    json = "json"
    markdown = "markdown"


class ReportFormat(StrEnum):
    """Output format of a report."""

    text = "text"
    json = "json"
    markdown = "markdown"
    html = "html"


class RunReportFormat(StrEnum):
    """Output format of a report about runs."""

    text = "text"
    json = "json"
    markdown = "markdown"
    html = "html"
    github = "github"
    sarif = "sarif"
    junit = "junit"


Select = Annotated[
    list[str] | None,
    typer.Option("--select", help="Rules to run: codes, code prefixes or names, comma-separated."),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option("--ignore", help="Rules to skip: codes, code prefixes or names, comma-separated."),
]
FailOnOption = Annotated[
    FailOn,
    typer.Option("--fail-on", help="Lowest finding severity that sets exit code 1."),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Allow engines with the option trust_remote_code to run code from their model.",
    ),
]
ExitZero = Annotated[
    bool, typer.Option("--exit-zero", help="Exit with 0 even if there are findings.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Same as --output-format json.")]
OnlyJsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PageFormatOption = Annotated[
    PageFormat, typer.Option("--output-format", "-o", help="Output format.")
]
ReportFormatOption = Annotated[
    ReportFormat | None,
    typer.Option(
        "--output-format",
        "-o",
        help="Report format, or a file for the report. "
        "\\[default: from the suffix of --output, else text]",
        show_default=False,
    ),
]
RunReportFormatOption = Annotated[
    RunReportFormat | None,
    typer.Option(
        "--output-format",
        "-o",
        help="Report format, or a file for the report. "
        "\\[default: from the suffix of --output, else text]",
        show_default=False,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="Settings file. \\[default: the nearest grpodoctor.toml, or pyproject.toml with "
        "\\[tool.grpodoctor]]",
        show_default=False,
    ),
]
IsolatedOption = Annotated[bool, typer.Option("--isolated", help="Ignore all settings files.")]
FrameworkOption = Annotated[
    str | None,
    typer.Option(
        "--framework",
        help="Framework whose config keys the remedies use (trl, verl, ...). "
        "\\[default: the run's]",
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="Framework (trl, verl, ...) or file format of the log. \\[default: detected]",
    ),
]
RunConfigOption = Annotated[
    Path | None,
    typer.Option("--run-config", help="Config (JSON, YAML, TOML) or start script of the run."),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option("--map", help="Log key to read as a metric, KEY=METRIC; repeatable."),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        help="Rows to read from a log with several runs, COLUMN=VALUE; repeatable.",
    ),
]
RayOption = Annotated[
    str | None,
    typer.Option("--ray", help="Ray cluster that reads rollout dumps: local, auto or an address."),
]


def fails(reaches: Callable[[str], bool], fail_on: FailOn, exit_zero: bool) -> bool:
    """Whether findings make the exit code 1.

    Args:
        reaches: whether there is a finding of this severity or worse.
        fail_on: value of `--fail-on`.
        exit_zero: value of `--exit-zero`.
    """
    return not exit_zero and fail_on is not FailOn.never and reaches(fail_on.value)


def page_format(output_format: PageFormat, as_json: bool) -> PageFormat:
    """The output format of a list or a page; `--json` takes precedence."""
    return PageFormat.json if as_json else output_format


def project_settings(
    config: Path | None, *, isolated: bool, may_be_missing: bool = False
) -> ProjectSettings:
    """The project's settings.

    Args:
        config: value of `--config`.
        isolated: value of `--isolated`.
        may_be_missing: whether the file that `config` names need not exist yet.

    Raises:
        ConfigError: if the settings file cannot be read or has an invalid key or value.
    """
    from grpodoctor.errors import ConfigError
    from grpodoctor.monitor.project_settings import ProjectSettings, find_settings, load_settings

    if isolated:
        if config is not None:
            raise ConfigError(
                "--isolated ignores the settings file that --config names", remedy="remove one"
            )
        return ProjectSettings()
    if config is not None and may_be_missing and not config.exists():
        return ProjectSettings(path=config)
    path = config or find_settings()
    return ProjectSettings() if path is None else load_settings(path)


def read_options(
    log_format: str | None,
    run_config: Path | None,
    mapping: list[str] | None,
    ray: str | None = None,
    project: ProjectSettings | None = None,
    where: list[str] | None = None,
) -> ReadOptions:
    """The options that say how to read a framework's log.

    Raises:
        ConfigError: if a mapping has no `=`, or names a metric that does not exist, or the run's
            config cannot be read.
    """
    from grpodoctor.frameworks.run_config import read_file
    from grpodoctor.runs.reading.read_options import ReadOptions

    if run_config is not None:
        read_file(run_config)  # a run of the own recorder has its settings and never opens it
    pairs = dict(project.mapping) if project else {}
    pairs.update(_pair(text) for text in mapping or ())
    rows = dict(_column_and_value(text) for text in where or ())
    return ReadOptions(log_format, run_config, pairs, ray, where=rows)


def _column_and_value(text: str) -> tuple[str, str]:
    from grpodoctor.errors import ConfigError

    column, equals, value = (part.strip() for part in text.partition("="))
    if not (column and equals):
        raise ConfigError(
            f"invalid condition {text[:60]!r}", where="--where", remedy="write COLUMN=VALUE"
        )
    return column, value


def _pair(text: str) -> tuple[str, str]:
    from grpodoctor.errors import ConfigError
    from grpodoctor.support.suggestions import near_names
    from grpodoctor.vocabulary.metrics import METRICS, metric_of

    key, equals, metric = (part.strip() for part in text.rpartition("="))
    if not (key and equals and metric):
        raise ConfigError(
            f"invalid mapping {text[:60]!r}", where="--map", remedy="write KEY=METRIC"
        )
    if metric_of(metric) is None:
        near = near_names(metric, [known.name for known in METRICS])
        remedy = f"did you mean {' or '.join(near)}?" if near else "list them: grpodoctor metrics"
        raise ConfigError(f"unknown metric {metric[:60]!r}", where="--map", remedy=remedy)
    return key, metric


def split_codes(options: list[str] | None) -> tuple[str, ...]:
    """The codes of a repeatable, comma-separated option."""
    parts = [part.strip() for option in options or () for part in option.split(",")]
    return tuple(part for part in parts if part)

"""Options that several commands share."""

from __future__ import annotations

import difflib
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from grpodoctor.runs.reading.framework_follower import ReadOptions


class FailOn(StrEnum):
    """The severity from which on findings make the exit code 1."""

    info = "info"
    warning = "warning"
    critical = "critical"


Select = Annotated[
    list[str] | None,
    typer.Option("--select", help="Only these rules: codes or prefixes, comma-separated."),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option("--ignore", help="Not these rules: codes or prefixes, comma-separated."),
]
FailOnOption = Annotated[
    FailOn,
    typer.Option(
        "--fail-on",
        help="Exit with 1 if a finding, active or resolved, is this severe or worse.",
    ),
]
FrameworkOption = Annotated[
    str | None,
    typer.Option("--framework", help="Spell remedies for this framework; default: the run's own."),
]


FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="Whose log it is (trl, verl, ...) or its file format; found out by default.",
    ),
]
RunConfigOption = Annotated[
    Path | None,
    typer.Option("--run-config", help="The run's settings, as JSON, YAML or TOML."),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option("--map", help="key=metric: what a key of the log is; may be repeated."),
]


RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        help="Read rollout dumps on Ray: local, auto, or the address of a cluster.",
    ),
]


def read_options(
    log_format: str | None,
    run_config: Path | None,
    mapping: list[str] | None,
    ray: str | None = None,
) -> ReadOptions:
    """What the user says about a foreign log.

    Raises:
        ConfigError: if a mapping is none, or names a metric that is not in the vocabulary.
    """
    from grpodoctor.runs.reading.framework_follower import ReadOptions

    pairs = dict(_pair(each) for each in mapping or ())
    return ReadOptions(log_format, run_config, pairs, ray)


def _pair(text: str) -> tuple[str, str]:
    from grpodoctor.errors import ConfigError
    from grpodoctor.vocabulary.metrics import METRICS, metric_of

    key, equals, metric = (part.strip() for part in text.rpartition("="))
    if not (key and equals and metric):
        raise ConfigError(f"--map {text[:60]!r} maps nothing", remedy="write --map key=metric")
    if metric_of(metric) is None:
        near = difflib.get_close_matches(metric, [each.name for each in METRICS], n=3)
        remedy = f"did you mean {' or '.join(near)}?" if near else "see: grpodoctor metrics"
        raise ConfigError(f"there is no metric {metric[:60]!r}", where="--map", remedy=remedy)
    return key, metric


def split_codes(options: list[str] | None) -> tuple[str, ...]:
    """The codes of a repeatable, comma-separated option."""
    parts = [part.strip() for option in options or () for part in option.split(",")]
    return tuple(part for part in parts if part)

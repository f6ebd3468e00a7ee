"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


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


def split_codes(options: list[str] | None) -> tuple[str, ...]:
    """The codes of a repeatable, comma-separated option."""
    parts = [part.strip() for option in options or () for part in option.split(",")]
    return tuple(part for part in parts if part)

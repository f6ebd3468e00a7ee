"""`grpodoctor probe --run`: the mismatch that a run recorded itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import typer

from grpodoctor.cli.options import FailOn, ReportFormat, fails
from grpodoctor.cli.output import write_report
from grpodoctor.errors import ConfigError


def refuse_engines(options: Mapping[str, object]) -> None:
    """Refuse engines next to a run.

    Raises:
        ConfigError: if one is given.
    """
    given = [name for name, value in options.items() if value]
    if given:
        raise ConfigError(
            f"--run and {', '.join(given)} cannot be combined",
            where="--run",
            remedy="use recorded:RUN?side=sampler as an engine to compare a run with another one",
        )


def judge_run(
    run: Path, steps: int, chosen_format: ReportFormat, fail_on: FailOn, *, exit_zero: bool
) -> NoReturn:
    """Print the mismatch of a run, and exit with 1 at or above a severity.

    Raises:
        RunError: if the run does not hold both sides' log-probabilities.
    """
    from grpodoctor.probe.run_mismatch.run_mismatch import measure_run
    from grpodoctor.report.probe.run_view import view_of
    from grpodoctor.rules.base import SEVERITIES

    result = measure_run(run, steps)
    write_report(view_of(result), chosen_format, None)
    reached = SEVERITIES.index(result.severity)
    failed = fails(lambda severity: reached >= SEVERITIES.index(severity), fail_on, exit_zero)
    raise typer.Exit(int(failed))

"""`grpodoctor probe --run`: the mismatch that a run recorded itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from grpodoctor.cli.options import ReportFormat, fails
from grpodoctor.cli.output import report_format, write_report
from grpodoctor.cli.probe_options import ProbeOptions
from grpodoctor.errors import ConfigError

if TYPE_CHECKING:
    from grpodoctor.probe.gates import GateResult, Limit


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


def judge_run(run: Path, options: ProbeOptions, limits: Sequence[Limit]) -> NoReturn:
    """Print the mismatch of a run, and exit with 1 at or above a severity or beyond a limit.

    Raises:
        RunError: if the run does not hold both sides' log-probabilities.
        ConfigError: if a limit's figure is not known for a run.
    """
    from grpodoctor.probe.gates import judge_steps
    from grpodoctor.probe.run_mismatch.run_mismatch import measure_run
    from grpodoctor.report.probe.run_view import view_of
    from grpodoctor.rules.base import SEVERITIES

    result = measure_run(run, options.steps)
    chosen_format = report_format(options.output_format, options.as_json, None)
    if not options.is_gate or chosen_format is not ReportFormat.text:
        write_report(view_of(result), chosen_format, None)
    if options.is_gate:
        end_gate(judge_steps(result, limits, exact=options.exact), options)
    reached = SEVERITIES.index(result.severity)
    failed = fails(
        lambda severity: reached >= SEVERITIES.index(severity), options.fail_on, options.exit_zero
    )
    raise typer.Exit(int(failed))


def end_gate(judged: GateResult, options: ProbeOptions) -> NoReturn:
    """Print the line of a gate, and exit with 0 or 1."""
    from grpodoctor.support.safe_text import plain

    chosen_format = report_format(options.output_format, options.as_json, None)
    is_report = chosen_format is not ReportFormat.text  # stdout has a report for a program
    print(plain(judged.line), file=sys.stderr if is_report else sys.stdout)
    raise typer.Exit(0 if judged.passed or options.exit_zero else 1)
